import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import puppeteer from 'puppeteer-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/** A headless Chromium of the system; `CHROMIUM` names another one. */
export function launch() {
  return puppeteer.launch({
    executablePath: process.env.CHROMIUM || findChromium(),
    // The sandbox needs rights that containers do not have; only the site that was just built is opened.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
}

function findChromium() {
  const folders = (process.env.PATH ?? '').split(delimiter);
  const found = folders.flatMap(folder => NAMES.map(name => join(folder, name))).find(isProgram);
  if (found !== undefined) return found;
  throw new Error(
    `Expected ${NAMES.join(', ')} on PATH or CHROMIUM to name one, found none. ` +
      'On Debian: apt-get install -y --no-install-recommends chromium',
  );
}

/** @param {string} file */
function isProgram(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
