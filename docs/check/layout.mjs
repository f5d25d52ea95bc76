/** The smallest text that may stand in a page, in CSS pixels. */
const SMALLEST = 14;

/**
 * What makes an open page hard to read: content that is wider than the screen, and small text.
 *
 * @param {import('puppeteer-core').Page} tab
 * @returns {Promise<string[]>}
 */
export async function layoutProblems(tab) {
  const [wide, small] = await Promise.all([tab.evaluate(wideElements), tab.evaluate(smallTexts, SMALLEST)]);
  return [...wide, ...small];
}

/** Runs in the page. Names what reaches beyond the screen, unless something around it scrolls or cuts it. */
function wideElements() {
  const screen = document.documentElement.clientWidth;
  const { scrollWidth } = document.documentElement;
  if (scrollWidth <= screen) return [];
  /** @param {Element} element */
  const isInside = element => {
    for (let outer = element.parentElement; outer !== null; outer = outer.parentElement) {
      if (outer !== document.body && getComputedStyle(outer).overflowX !== 'visible') return true;
    }
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')].filter(
    element => element.getBoundingClientRect().right > screen + 0.5 && !isInside(element),
  );
  const names = wide.slice(0, 3).map(({ tagName, textContent }) => {
    const start = (textContent ?? '').trim().slice(0, 40);
    return `<${tagName.toLowerCase()}> "${start}"`;
  });
  return [`the document is ${scrollWidth} px wide on a screen of ${screen} px: ${names.join(', ')}`];
}

/**
 * Runs in the page. Texts of the content that are shown smaller than allowed, drawings at their drawn size.
 *
 * @param {number} smallest
 */
function smallTexts(smallest) {
  const content = document.querySelector('main, .VPHome');
  if (content === null) return ['the page has no content'];
  const texts = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  const found = new Map();
  while (texts.nextNode()) {
    const { parentElement: element, textContent } = texts.currentNode;
    if (element === null || (textContent ?? '').trim() === '' || element.tagName === 'STYLE') continue;
    const { width, height } = element.getBoundingClientRect();
    if (!element.checkVisibility() || width === 0 || height === 0) continue;
    const scale = element instanceof SVGGraphicsElement ? (element.getScreenCTM()?.a ?? 1) : 1;
    const size = parseFloat(getComputedStyle(element).fontSize) * scale;
    if (size < smallest - 0.1) found.set(size.toFixed(1), (textContent ?? '').trim().slice(0, 40));
  }
  return [...found].map(([size, text]) => `text of ${size} px: "${text}"`);
}
