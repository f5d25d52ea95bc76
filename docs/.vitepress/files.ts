import type { MarkdownEnv, MarkdownRenderer } from 'vitepress';
import { cpSync, existsSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { base, repository } from './environment';

const DOCS = fileURLToPath(new URL('..', import.meta.url));

/** Files in docs/ that pages link to, by their path in docs/. */
const linked = new Set<string>();

/**
 * Links to files that are no pages: those in docs/ become part of the site, others lead to the repository, or are
 * plain text where the site does not know it. One that leads nowhere stops the build.
 */
export function linkFiles(md: MarkdownRenderer): void {
  md.core.ruler.push('files', state => {
    const { path: page = DOCS } = state.env as MarkdownEnv;
    for (const { children } of state.tokens) {
      for (const [index, token] of (children ?? []).entries()) {
        const href = token.type === 'link_open' ? token.attrGet('href') : null;
        if (href === null || !isFile(href)) continue;
        const target = addressOf(href, page);
        if (target !== undefined)
          token.attrs = [
            ['href', target],
            ['target', '_blank'],
          ];
        else unlink(children ?? [], index);
      }
    }
  });
}

/** Puts the files that pages link to beside the pages. */
export function copyLinkedFiles(outDir: string): void {
  for (const file of linked) cpSync(join(DOCS, file), join(outDir, file));
}

function isFile(href: string): boolean {
  if (/^(?:[a-z]+:|[#/])/i.test(href)) return false;
  return href.startsWith('../') || !/^[^#]*\.md(?:#|$)/.test(href);
}

function addressOf(href: string, page: string): string | undefined {
  const [path = '', anchor] = decodeURI(href).split('#');
  const file = join(dirname(page), path);
  if (!existsSync(file)) {
    throw new Error(`Expected ${relative(DOCS, page)} to link to a file of the repository, got '${href}'.`);
  }
  const inDocs = relative(DOCS, file);
  if (!inDocs.startsWith('..') && statSync(file).isFile()) {
    linked.add(inDocs);
    return base + inDocs;
  }
  if (repository === undefined) return undefined;
  return `${repository}/blob/HEAD/${relative(join(DOCS, '..'), file)}${anchor === undefined ? '' : `#${anchor}`}`;
}

interface Token {
  type: string;
  tag: string;
  attrs: [string, string][] | null;
}

/** Leaves the text of the link that begins at `index`. */
function unlink(tokens: Token[], index: number): void {
  const end = tokens.findIndex(({ type }, at) => at > index && type === 'link_close');
  for (const token of [tokens[index], tokens[end]]) {
    if (token !== undefined)
      Object.assign(token, { type: 'text', tag: '', attrs: null, content: '', nesting: 0 });
  }
}
