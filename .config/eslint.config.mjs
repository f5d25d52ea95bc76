import path from 'node:path';
import tseslint from 'typescript-eslint';

const typed = {
  languageOptions: {
    parserOptions: { project: './tsconfig.json', tsconfigRootDir: path.dirname(import.meta.dirname) },
  },
};

/** Folders of src. A layer imports from those behind it, and from no entry (docs/how-it-works.md, "In the source"). */
const ENTRIES = ['testing', 'otel', 'cli'];
const LAYERS = ['routes', 'value', 'http', 'engine', 'storage'];

const downwards = LAYERS.map((layer, index) => {
  const patterns = [...ENTRIES, ...LAYERS.slice(0, index)].map(above => ({
    regex: `^(\\.\\./)+${above}/`,
    message: `src/${layer} lies below src/${above}.`,
  }));
  return { files: [`src/${layer}/**/*.ts`], rules: { 'no-restricted-imports': ['error', { patterns }] } };
});

export default tseslint.config(
  {
    ignores: [
      '**/dist/**',
      '**/node_modules/**',
      '**/*.mjs',
      '**/*.js',
      'test/versions/**',
      'docs/.vitepress/**',
    ],
  },
  ...tseslint.configs.recommendedTypeChecked,
  typed,
  {
    files: ['**/*.ts'],
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      // Storages may answer with a value or a promise, so functions that satisfy the interface can lack an await.
      '@typescript-eslint/require-await': 'off',
      complexity: ['error', 12],
      'max-params': ['error', 4],
      'max-depth': ['error', 3],
      eqeqeq: ['error', 'smart'],
      'prefer-const': 'error',
    },
  },
  ...downwards,
  { files: ['src/**/*.ts'], rules: { 'max-lines': ['error', 350], 'max-lines-per-function': ['error', 60] } },
  {
    files: ['test/**/*.ts', 'bench/**/*.ts', 'docs/**/*.ts'],
    rules: {
      // JSON read from a socket is untyped by nature; tests assert on it.
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
    },
  },
);
