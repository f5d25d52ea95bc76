import { existsSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

/**
 * Serves a built site as a host of static files does: `/start` is `start.html`, what is not there is a 404.
 *
 * @param {string} folder
 * @param {string} base
 * @returns {Promise<{ url: string, close: () => void }>}
 */
export async function serve(folder, base) {
  const server = createServer((request, response) => {
    const file = fileOf(folder, base, request.url ?? '/');
    const found = file ?? join(folder, '404.html');
    const type = TYPES[/** @type {keyof typeof TYPES} */ (extname(found))] ?? 'text/plain; charset=utf-8';
    response.writeHead(file === undefined ? 404 : 200, { 'Content-Type': type });
    response.end(readFileSync(found));
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${port}${base}`,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/**
 * The file that answers a path of the site, where there is one.
 *
 * @param {string} folder
 * @param {string} base
 * @param {string} url
 */
export function fileOf(folder, base, url) {
  const path = decodeURIComponent(new URL(url, 'http://site').pathname);
  if (!path.startsWith(base)) return undefined;
  const asked = join(folder, normalize(`/${path.slice(base.length)}`));
  return [asked, `${asked}.html`, join(asked, 'index.html')].find(
    file => existsSync(file) && statSync(file).isFile(),
  );
}
