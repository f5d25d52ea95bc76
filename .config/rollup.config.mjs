// A few files instead of a hundred: the package loads in half the time. What two entry points share is in one place for both.
import typescript from '@rollup/plugin-typescript';

const NAMED_PACKAGE = /^[^./]/;

export default ({ dir = 'dist' }) => ({
  input: {
    // The first of two names gets the code, the other the list of its exports: Node reads all of a file for the exports that `import` finds.
    'shared/library': 'src/index.ts',
    index: 'src/index.ts',
    'testing/index': 'src/testing/index.ts',
    'otel/index': 'src/otel/index.ts',
    'cli/main': 'src/cli/main.ts',
  },
  // The helpers of TypeScript's decorators come along, so that the package depends on nothing.
  external: id => NAMED_PACKAGE.test(id) && !id.startsWith('src/') && id !== 'tslib',
  plugins: [
    typescript({
      tsconfig: 'src/tsconfig.build.json',
      compilerOptions: {
        module: 'esnext',
        moduleResolution: 'bundler',
        outDir: dir,
        declarationDir: dir,
        // Otherwise what does not compile is only warned of.
        noEmitOnError: true,
      },
    }),
  ],
  output: {
    dir,
    format: 'cjs',
    exports: 'named',
    esModule: true,
    chunkFileNames: 'shared/[name].js',
    hoistTransitiveImports: false,
  },
});
