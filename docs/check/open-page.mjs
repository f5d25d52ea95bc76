/** The screens that every page is opened on, in CSS pixels. */
export const SCREENS = {
  desktop: { width: 1280, height: 800 },
  phone: { width: 375, height: 812, isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
};

/**
 * Opens an address in a tab of its own, waits until it is drawn, and notes what goes wrong meanwhile and afterwards.
 *
 * @param {import('puppeteer-core').Browser} browser
 * @param {string} url
 * @param {keyof typeof SCREENS} screen
 */
export async function openPage(browser, url, screen) {
  const tab = await browser.newPage();
  /** @type {string[]} */
  const problems = [];
  const { origin } = new URL(url);
  tab.on('console', message => {
    const place = message.location().url ?? '';
    if (['error', 'warn'].includes(message.type()))
      problems.push(`console: ${message.text()} ${place}`.trim());
  });
  tab.on('pageerror', error => problems.push(`uncaught: ${String(error)}`));
  tab.on('requestfailed', request =>
    problems.push(`request failed: ${request.url()} ${request.failure()?.errorText ?? ''}`),
  );
  tab.on('response', response => {
    if (response.status() >= 400) problems.push(`answer ${response.status()}: ${response.url()}`);
  });
  tab.on('request', request => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith(origin)) {
      problems.push(`request to another host: ${request.url()}`);
    }
  });
  await tab.setViewport(SCREENS[screen]);
  await tab.goto(url, { waitUntil: 'networkidle0', timeout: 30_000 });
  await tab.waitForFunction(isDrawn, { timeout: 15_000, polling: 100 }).catch(() => {
    problems.push('not drawn within 15 s: a diagram or an image is missing');
  });
  return { tab, problems };
}

/** Runs in the page: every diagram is a drawing, every picture has arrived. */
function isDrawn() {
  const undrawn = [...document.querySelectorAll('.diagram')].filter(diagram => !diagram.querySelector('svg'));
  const pictures = [...document.images].filter(picture => picture.loading !== 'lazy');
  return undrawn.length === 0 && pictures.every(picture => picture.complete && picture.naturalWidth > 0);
}
