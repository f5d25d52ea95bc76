/** `DOCS_BASE`: the path under which the site is served, `/` unless told otherwise. */
export const base = readBase(process.env.DOCS_BASE);

/**
 * `DOCS_REPOSITORY`: the address of the repository on its host. Pages link to files outside of docs/ there; without
 * it the site shows the text of such links alone.
 */
export const repository = readRepository(process.env.DOCS_REPOSITORY);

function readBase(value = '/'): string {
  if (/^\/(?:[\w.-]+\/)*$/.test(value)) return value;
  throw new Error(`Expected DOCS_BASE to begin and end with a slash, as in '/docs/', got '${value}'.`);
}

function readRepository(value = ''): string | undefined {
  if (value === '') return undefined;
  if (/^https:\/\/\S+[^\s/]$/.test(value)) return value;
  throw new Error(
    `Expected DOCS_REPOSITORY to be an https address without a slash at its end, got '${value}'.`,
  );
}
