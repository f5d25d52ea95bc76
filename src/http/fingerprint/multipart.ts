import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { types } from 'node:util';
import { pipeline } from 'node:stream/promises';
import { digestOf } from '../../digest';
import { BodyUnreadableError } from '../../idempotency.errors';
import { after, type MaybePromise } from '../../maybe-promise';
import { canonicalJson } from './canonical';

/** A request with a `multipart/…` body. */
export interface MultipartSource {
  readonly body?: unknown;
  readonly file?: unknown;
  readonly files?: unknown;
}

/** What multer, and Nest's interceptors on Fastify, say about one file. */
interface UploadedFile {
  readonly fieldname?: unknown;
  readonly originalname?: unknown;
  readonly mimetype?: unknown;
  readonly buffer?: unknown;
  readonly path?: unknown;
}

/** A part of @fastify/multipart with `attachFieldsToBody: true`. It refers back to the whole form. */
interface FormPart {
  readonly type?: unknown;
  readonly fields: unknown;
  readonly filename?: unknown;
  readonly mimetype?: unknown;
  readonly value?: unknown;
  readonly valueTruncated?: unknown;
  readonly fieldnameTruncated?: unknown;
  readonly file?: { readonly truncated?: unknown };
  readonly _buf?: unknown;
  readonly toBuffer?: unknown;
}

type FileText = readonly [field: unknown, name: unknown, type: unknown, digest: string];

/**
 * Canonical text of a parsed form: its fields, and name, type and content of its files. The boundary does not count, the order
 * of files within one field does.
 *
 * Knows multer (in memory and on disk), Nest's own upload interceptors on Fastify, and @fastify/multipart with
 * `attachFieldsToBody` `true` or `'keyValues'`.
 *
 * @returns a promise only where files are on disk
 * @throws BodyUnreadableError (or rejects with it) where the form was not parsed, or a file's content is out of reach: not
 * read yet, or handed to a storage elsewhere
 */
export function multipartText(request: MultipartSource, contentType: string): MaybePromise<string> {
  const { body } = request;
  const files = filesOf(request);
  if (!isParsedForm(request) && files.length === 0) throw notParsed(contentType);
  if (isObject(body) && Object.values(body).some(value => isPartOf(value, body))) {
    return canonicalJson({ parts: describeParts(body) });
  }
  return after(describeFiles(files), described => formText(body, described));
}

function formText(body: unknown, files: readonly FileText[]): string {
  return canonicalJson({ fields: body, files: [...files].sort(byField) });
}

// Sorting is stable, which keeps the order of files within one field.
function byField([one]: FileText, [other]: FileText): number {
  return String(one) < String(other) ? -1 : String(one) > String(other) ? 1 : 0;
}

/**
 * multer gives the form a body without prototype, also an empty one. `{}` is an empty form of @fastify/multipart, whose methods are on
 * its requests; without them it is what body-parser 1 leaves unparsed.
 */
function isParsedForm({ body, file }: MultipartSource): boolean {
  if (!isObject(body)) return false;
  return Object.getPrototypeOf(body) === null || Object.keys(body).length > 0 || typeof file === 'function';
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function filesOf({ file, files }: MultipartSource): UploadedFile[] {
  const many: unknown[] = isObject(files) ? Object.values(files).flat() : [];
  return [file, ...many].filter(isObject);
}

function describeFiles(files: readonly UploadedFile[]): MaybePromise<FileText[]> {
  return files.every(({ buffer }) => types.isUint8Array(buffer))
    ? files.map(file => describeFile(file, digestOf(file.buffer as Uint8Array)))
    : describeStoredFiles(files);
}

async function describeStoredFiles(files: readonly UploadedFile[]): Promise<FileText[]> {
  const described: FileText[] = [];
  // One after the other: a form of many files must not take all file descriptors.
  for (const file of files) {
    const { buffer, path } = file;
    if (types.isUint8Array(buffer)) described.push(describeFile(file, digestOf(buffer)));
    else if (typeof path === 'string') described.push(describeFile(file, await digestOfFile(path)));
    else throw outOfReach();
  }
  return described;
}

function describeFile(file: UploadedFile, digest: string): FileText {
  return [file.fieldname, file.originalname, file.mimetype, digest];
}

async function digestOfFile(path: string): Promise<string> {
  const digest = createHash('sha256');
  try {
    await pipeline(createReadStream(path), digest);
  } catch (error) {
    throw outOfReach(error);
  }
  return digest.digest('base64url');
}

/** The reference to the form itself is what a JSON field that only looks like a part cannot have. */
function isPartOf(value: unknown, form: unknown): boolean {
  const part: unknown = Array.isArray(value) ? value[0] : value;
  return isObject(part) && part['fields'] === form;
}

function describeParts(form: Record<string, unknown>): Record<string, unknown> {
  const described = Object.create(null) as Record<string, unknown>;
  for (const [name, value] of Object.entries(form)) {
    if (!isPartOf(value, form)) described[name] = { value };
    else
      described[name] = (Array.isArray(value) ? (value as FormPart[]) : [value as FormPart]).map(
        describePart,
      );
  }
  return described;
}

function describePart(part: FormPart): unknown {
  if (part.valueTruncated === true || part.fieldnameTruncated === true) throw outOfReach();
  if (part.type !== 'file' && typeof part.toBuffer !== 'function') return { value: part.value };
  // Once its stream was read, `toBuffer()` gives nothing, so only what it kept counts.
  if (!types.isUint8Array(part._buf) || part.file?.truncated === true) throw outOfReach();
  return { file: [part.filename, part.mimetype, digestOf(part._buf)] };
}

function notParsed(contentType: string): BodyUnreadableError {
  return new BodyUnreadableError(
    `The ${/^multipart\/[\w.+-]{1,64}$/.test(contentType) ? contentType : 'multipart'} body was not parsed, so this request cannot be told from others. In the application: put \`@Idempotent()\` above the upload interceptor, register @fastify/multipart with \`attachFieldsToBody\`, or give the route its own \`fingerprint\`.`,
  );
}

function outOfReach(cause?: unknown): BodyUnreadableError {
  return new BodyUnreadableError(
    'The content of an uploaded file cannot be read back, so this request cannot be told from others. In the application: keep uploads in memory or on disk until the handler runs, or give the route its own `fingerprint`.',
    cause,
  );
}
