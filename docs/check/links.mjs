import { relative } from 'node:path';
import { fileOf } from './server.mjs';

/**
 * @typedef {object} Anchors What a page offers to links, and its own links.
 * @property {string[]} ids
 * @property {string[]} links absolute addresses
 */

/**
 * @param {import('puppeteer-core').Page} tab
 * @returns {Promise<Anchors>}
 */
export function anchorsOf(tab) {
  return tab.evaluate(() => ({
    ids: [...document.querySelectorAll('[id]')].map(({ id }) => id),
    links: [...document.querySelectorAll('a[href]')].map(
      link => /** @type {HTMLAnchorElement} */ (link).href,
    ),
  }));
}

/**
 * The links of one page that lead nowhere on this site. Links to other hosts are not followed.
 *
 * @param {Anchors} page
 * @param {ReadonlyMap<string, Anchors>} pages by their file
 * @param {{ folder: string, base: string, url: string }} site
 */
export function brokenLinks(page, pages, { folder, base, url }) {
  const { origin } = new URL(url);
  const problems = new Set();
  for (const link of page.links.filter(href => href.startsWith(origin))) {
    const { pathname, hash } = new URL(link);
    const file = fileOf(folder, base, link);
    if (file === undefined) problems.add(`broken link: ${pathname}${hash}`);
    else if (hash !== '' && !pages.get(file)?.ids.includes(decodeURIComponent(hash.slice(1)))) {
      problems.add(`broken anchor: ${pathname}${hash}`);
    }
  }
  return [...problems];
}

/**
 * The pages that no link of the sidebar leads to.
 *
 * @param {Anchors} start a page with a sidebar
 * @param {ReadonlyMap<string, Anchors>} pages by their file
 * @param {{ folder: string, base: string }} site
 */
export function unlistedPages(start, pages, { folder, base }) {
  const listed = new Set(start.links.map(link => fileOf(folder, base, link)));
  return [...pages.keys()]
    .filter(file => !listed.has(file))
    .map(file => `no link leads to ${relative(folder, file)}`);
}
