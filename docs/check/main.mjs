// Opens every page of the built site in a real Chromium, on a desktop and on a phone, and says what is wrong with it.
import { existsSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BEHAVIOURS } from './behaviour.mjs';
import { launch } from './browser.mjs';
import { layoutProblems } from './layout.mjs';
import { anchorsOf, brokenLinks, unlistedPages } from './links.mjs';
import { openPage, SCREENS } from './open-page.mjs';
import { serve } from './server.mjs';

/** @typedef {import('./links.mjs').Anchors} Anchors */

const screens = /** @type {(keyof typeof SCREENS)[]} */ (Object.keys(SCREENS));
const folder = resolve(fileURLToPath(new URL('..', import.meta.url)), process.argv[2] ?? '.vitepress/dist');
const base = process.env.DOCS_BASE ?? '/';
/** How many pages are open at a time. */
const TABS = 4;

if (!existsSync(join(folder, 'index.html'))) {
  throw new Error(`Expected the built site in ${folder}, found none. Build it first: npm run docs`);
}

const started = performance.now();
const browser = await launch();
const { url, close } = await serve(folder, base);
const site = { folder, base, url };

try {
  const failures = [...(await checkPages()), ...(await checkBehaviours())];
  const seconds = ((performance.now() - started) / 1_000).toFixed(0);
  console.log(
    failures.length === 0 ? `\nAll is well (${seconds} s).` : `\n${failures.length} problems (${seconds} s).`,
  );
  process.exitCode = failures.length === 0 ? 0 : 1;
} finally {
  await browser.close();
  close();
}

async function checkPages() {
  /** @type {Map<string, Anchors>} */
  const pages = new Map();
  /** @type {Map<string, string[]>} */
  const found = new Map();
  const waiting = htmlFiles();
  await Promise.all(Array.from({ length: TABS }, visit));
  for (const [file, anchors] of pages) found.get(file)?.push(...brokenLinks(anchors, pages, site));
  for (const file of htmlFiles()) report(relative(folder, file), found.get(file) ?? []);
  const start = pages.get(join(folder, 'start.html'));
  const unlisted = start === undefined ? ['there is no page start'] : unlistedPages(start, pages, site);
  report('sidebar', unlisted);
  return [...[...found.values()].flat(), ...unlisted];

  async function visit() {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      /** @type {string[]} */
      const problems = [];
      for (const screen of screens) {
        const opened = await look(file, screen);
        problems.push(...opened.problems.map(problem => `${screen}: ${problem}`));
        // Both have the same links; the sidebar of a phone is closed.
        if (screen === 'desktop') pages.set(file, opened.anchors);
      }
      found.set(file, problems);
    }
  }
}

/**
 * @param {string} file
 * @param {keyof typeof SCREENS} screen
 */
async function look(file, screen) {
  const name = relative(folder, file).replace(/\.html$/, '');
  const { tab, problems } = await openPage(browser, url + (name === 'index' ? '' : name), screen);
  problems.push(...(await layoutProblems(tab)));
  const anchors = await anchorsOf(tab);
  await tab.close();
  return { problems, anchors };
}

async function checkBehaviours() {
  const failures = [];
  for (const [name, behave] of Object.entries(BEHAVIOURS)) {
    const problems = await behave(browser, url).catch(error => [String(error)]);
    report(name, problems);
    failures.push(...problems);
  }
  return failures;
}

function htmlFiles() {
  return readdirSync(folder)
    .filter(file => file.endsWith('.html') && file !== '404.html')
    .sort()
    .map(file => join(folder, file));
}

/**
 * @param {string} name
 * @param {string[]} problems
 */
function report(name, problems) {
  console.log(`${problems.length === 0 ? 'ok  ' : 'FAIL'} ${name}`);
  for (const problem of problems) console.log(`       ${problem}`);
}
