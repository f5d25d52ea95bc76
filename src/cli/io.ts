import { formatJson, printable } from './format';

/** What a command may touch of its process. */
export interface Io {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream;
}

/** Results go to stdout, as text or as one JSON document; everything that is said about them goes to stderr. */
export class Output {
  constructor(
    private readonly io: Io,
    private readonly isJson: boolean,
  ) {}

  result(json: object, text: () => string): void {
    this.io.stdout.write(this.isJson ? formatJson(json) : text());
  }

  note(text: string): void {
    this.io.stderr.write(`${printable(text)}\n`);
  }
}
