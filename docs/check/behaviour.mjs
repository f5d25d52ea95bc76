import { openPage } from './open-page.mjs';

const TIMEOUT = { timeout: 10_000, polling: 100 };

/** What a visitor does, by name. Each gives what went wrong. */
export const BEHAVIOURS = { search, searchOnPhone, darkMode, errorAnchors };

/**
 * Types a word, and opens the first hit.
 *
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} url
 */
async function search(browser, url) {
  return searchFrom(browser, url, 'desktop');
}

/**
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} url
 */
async function searchOnPhone(browser, url) {
  return searchFrom(browser, `${url}options`, 'phone');
}

/**
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} start
 * @param {'desktop' | 'phone'} screen
 */
async function searchFrom(browser, start, screen) {
  const { tab, problems } = await openPage(browser, start, screen);
  await tab.click('.VPNavBarSearch button');
  await tab.waitForSelector('#localsearch-input', TIMEOUT);
  await tab.type('#localsearch-input', 'whenLeaseLapses');
  const hit = await tab.waitForSelector('.VPLocalSearchBox .results a.result', TIMEOUT);
  const target = await hit?.evaluate(link => /** @type {HTMLAnchorElement} */ (link).href);
  await tab.keyboard.press('Enter');
  await tab.waitForFunction(href => location.href === href, TIMEOUT, target);
  await tab.waitForFunction(() => !document.querySelector('.VPLocalSearchBox'), TIMEOUT);
  await tab.waitForFunction(
    () => document.querySelector('main')?.textContent?.includes('whenLeaseLapses'),
    TIMEOUT,
  );
  await tab.close();
  return problems;
}

/**
 * Switches to dark and back; diagrams are drawn again.
 *
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} url
 */
async function darkMode(browser, url) {
  const { tab, problems } = await openPage(browser, `${url}how-it-works`, 'desktop');
  const look = () =>
    tab.evaluate(() => ({
      background: getComputedStyle(document.body).backgroundColor,
      text: getComputedStyle(document.body).color,
      diagram: document.querySelector('.diagram svg')?.id,
    }));
  const before = await look();
  await tab.click('.VPNavBarAppearance .VPSwitchAppearance');
  await tab.waitForFunction(id => document.querySelector('.diagram svg')?.id !== id, TIMEOUT, before.diagram);
  const after = await look();
  if (after.background === before.background) problems.push(`the background stays ${before.background}`);
  if (after.text === before.text) problems.push(`the text stays ${before.text}`);
  await tab.close();
  return problems;
}

/**
 * The address in `type` of a problem document scrolls to its code.
 *
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} url
 */
async function errorAnchors(browser, url) {
  const { tab, problems } = await openPage(browser, `${url}errors`, 'desktop');
  const ids = await tab.$$eval('a[id^="/"]', anchors => anchors.map(({ id }) => id));
  await tab.close();
  if (ids.length === 0) problems.push('errors.md has no anchors of codes');
  for (const id of [ids[0], ids[Math.floor(ids.length / 2)]]) {
    const opened = await openPage(browser, `${url}errors#${id}`, 'desktop');
    const isSeen = await opened.tab.waitForFunction(isAtTop, { timeout: 5_000, polling: 100 }, id).then(
      () => true,
      () => false,
    );
    if (!isSeen) problems.push(`errors#${id} does not scroll to its code`);
    problems.push(...opened.problems);
    await opened.tab.close();
  }
  return problems;
}

/**
 * Runs in the page.
 *
 * @param {string | undefined} id
 */
function isAtTop(id) {
  const top = document.getElementById(id ?? '')?.getBoundingClientRect().top ?? -1;
  return top >= 0 && top < innerHeight / 2;
}
