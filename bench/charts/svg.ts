/** What every chart is made of. Widths and positions are in pixels of the drawing. */
export const WIDTH = 860;

/** A chart before it has a frame. */
export interface Drawing {
  readonly height: number;
  /** SVG elements, placed from the top left of the space between heading and caption. */
  readonly body: string;
}

export interface Heading {
  readonly title: string;
  /** Names of the series, in the order of their colours. */
  readonly series: readonly string[];
  /** Lines below the chart: the machine, the command. */
  readonly caption: readonly string[];
}

/** Colours that are told apart in both schemes, also by those who see red and green alike. */
const LIGHT = ['#0b62c4', '#c2570c', '#6b7280', '#0f8a6d', '#8b3fb8'];
const DARK = ['#5aa9ff', '#f2a15f', '#a3acb8', '#4cd1ac', '#cf9bf0'];

/** As many series as a chart can tell apart. */
export const MOST_SERIES = LIGHT.length;

const FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';

function colours(palette: readonly string[]): string {
  return palette
    .map((colour, index) => `.fill${index}{fill:${colour}}.line${index}{stroke:${colour}}`)
    .join('');
}

const STYLE = `
text{font:13px ${FONT};fill:#1f2328}
.title{font-size:16px;font-weight:600}
.small{font-size:11px;fill:#57606a}
.back{fill:#fff;stroke:#d0d7de}
.grid{stroke:#d8dee4}
.axis{stroke:#57606a}
.whisker{stroke:#1f2328}
.line{fill:none;stroke-width:2}
${colours(LIGHT)}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.small{fill:#9da7b3}
.back{fill:#0d1117;stroke:#30363d}
.grid{stroke:#2a3038}
.axis{stroke:#9da7b3}
.whisker{stroke:#e6edf3}
${colours(DARK)}
}`;

const HEADING_HEIGHT = 66;
const CAPTION_LINE = 16;
const CAPTION_CHARACTERS = 140;
const MARGIN = 16;

/** The whole file: background, title, legend, chart and caption. */
export function svg({ title, series, caption }: Heading, { height, body }: Drawing): string {
  const lines = caption.flatMap(wrapped);
  const whole = HEADING_HEIGHT + height + lines.length * CAPTION_LINE + MARGIN;
  const captionLines = lines.map((line, index) =>
    text(MARGIN, HEADING_HEIGHT + height + (index + 0.9) * CAPTION_LINE, line, { class: 'small' }),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${whole}" width="${WIDTH}" height="${whole}" role="img" aria-labelledby="title">
<title id="title">${escaped(title)}</title>
<style>${STYLE}
</style>
<rect class="back" x="0.5" y="0.5" width="${WIDTH - 1}" height="${whole - 1}" rx="6"/>
${text(MARGIN, 26, title, { class: 'title' })}
${legend(series)}
<g transform="translate(0 ${HEADING_HEIGHT})">
${body}
</g>
${captionLines.join('\n')}
</svg>
`;
}

/** Breaks a line of the caption between its parts, or else at a space, before it leaves the chart. */
function wrapped(line: string): string[] {
  if (line.length <= CAPTION_CHARACTERS) return [line];
  const between = line.lastIndexOf(' · ', CAPTION_CHARACTERS);
  if (between > 0) return [line.slice(0, between), ...wrapped(line.slice(between + 3))];
  const space = line.lastIndexOf(' ', CAPTION_CHARACTERS);
  return space > 0 ? [line.slice(0, space), ...wrapped(line.slice(space + 1))] : [line];
}

function legend(series: readonly string[]): string {
  let x = MARGIN;
  const entries = series.map((name, index) => {
    const entry = `<rect class="fill${index}" x="${x}" y="39" width="12" height="12" rx="2"/>${text(x + 17, 49.5, name)}`;
    x += 17 + textWidth(name) + 20;
    return entry;
  });
  return entries.join('\n');
}

/** Near enough: the fonts are not known. */
function textWidth(value: string): number {
  return value.length * 7.2;
}

export interface TextOptions {
  readonly class?: string;
  readonly anchor?: 'start' | 'middle' | 'end';
}

export function text(x: number, y: number, value: string, options: TextOptions = {}): string {
  const anchor = options.anchor === undefined ? '' : ` text-anchor="${options.anchor}"`;
  const kind = options.class === undefined ? '' : ` class="${options.class}"`;
  return `<text x="${short(x)}" y="${short(y)}"${anchor}${kind}>${escaped(value)}</text>`;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

export function line(from: Point, to: Point, kind: string): string {
  return `<line class="${kind}" x1="${short(from.x)}" y1="${short(from.y)}" x2="${short(to.x)}" y2="${short(to.y)}"/>`;
}

/** A tenth of a pixel is enough, and keeps the diffs of charts readable. */
export function short(value: number): string {
  return String(Math.round(value * 10) / 10);
}

function escaped(value: string): string {
  return value.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}
