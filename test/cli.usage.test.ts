import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { COMMANDS } from '../src/cli/commands';
import { BuiltCli, runCli, type Environment } from './support/cli';
import { readPage } from './support/pages';

let built: BuiltCli;
beforeAll(() => (built = new BuiltCli()));
afterAll(() => built.remove());

describe('a wrong command line', () => {
  const URL_FLAG = ['--redis-url', 'redis://127.0.0.1:1'];

  it.each<[string, string[], string]>([
    ['no command', [], 'Expected a command (inspect, release, resolve, delete, stats), got none.'],
    ['an unknown command', ['inspcet'], 'Unknown command inspcet. Did you mean inspect?'],
    ['an unknown flag', ['stats', '--redis-ulr=x'], 'Unknown flag --redis-ulr. Did you mean --redis-url?'],
    ['a flag of another command', ['inspect', '--force'], 'Unknown flag --force. Flags here are: --key,'],
    ['a name of every object', ['inspect', '--constructor'], 'Unknown flag --constructor.'],
    ['a flag without its value', ['inspect', '--key'], 'Expected a value after --key: --key KEY.'],
    [
      'a flag for a value',
      ['inspect', '--key', '--json'],
      'Expected a value after --key, got what looks like',
    ],
    ['a value too many', ['stats', '--json=yes'], '--json takes no value.'],
    ['a flag twice', ['inspect', '--key', 'a', '--key', 'b'], '--key was given twice.'],
    ['an argument too many', ['stats', 'all'], "Unexpected argument 'all'."],
    ['no name', ['inspect'], 'Expected --key or --record-key, got none.'],
    [
      'two names',
      ['inspect', '--key', 'k', '--record-key', 'r'],
      'got --key and --record-key. Leave all but one',
    ],
    [
      'a Redis key',
      ['inspect', '--record-key', 'idempotency:x'],
      'Expected --record-key to be 43 characters',
    ],
    ['a record key and a scope', ['delete', '--record-key', 'r', '--scope', 's'], 'got --scope too'],
    ['two sources', ['inspect', '--key', 'k', '--route', 'r', '--operation', 'o'], 'Expected --operation or'],
    ['a blank key', ['inspect', '--key', ' '], 'got nothing'],
    ['a wrong namespace', ['inspect', '--key', 'k', '--namespace', 'a b'], 'Expected `namespace` to be'],
    [
      'a wrong number',
      ['stats', '--limit', '0'],
      "Expected --limit to be an integer of at least 1, got '0'.",
    ],
    ['a wrong duration', ['stats', '--timeout', 'soon'], "Expected --timeout to be a duration such as '45s'"],
    ['a long timeout', ['stats', '--timeout', '1h'], "Expected --timeout to be at most 20s, got '1h'."],
    ['no outcome', ['resolve', '--key', 'k'], 'Expected --status or --value, got none.'],
    [
      'a wrong status',
      ['resolve', '--key', 'k', '--status', '99'],
      'Expected --status to be a status from 200',
    ],
    [
      'a status that is not final',
      ['resolve', '--key', 'k', '--status', '100'],
      'Expected `status` to be a final',
    ],
    [
      'a wrong header',
      ['resolve', '--key', 'k', '--status', '200', '--header', 'x'],
      "Expected --header to be 'Name",
    ],
    [
      'a header that is never stored',
      ['resolve', '--key', 'k', '--status', '200', '--header', 'Set-Cookie: a=b'],
      'Expected `headers` to be headers other than',
    ],
    [
      'a body that cannot be sent',
      ['resolve', '--key', 'k', '--status', '204', '--body', '{}'],
      'Expected `body` to be none with the status 204',
    ],
    [
      'a body of no type',
      ['resolve', '--key', 'k', '--status', '200', '--body', 'text'],
      "Expected --header 'Con",
    ],
    [
      'two bodies',
      ['resolve', '--key', 'k', '--status', '200', '--body', 'x', '--body-file', 'f'],
      'Expected --body or',
    ],
    [
      'no file',
      ['resolve', '--key', 'k', '--status', '200', '--body-file', '/no/file'],
      'Expected --body-file to be',
    ],
    [
      'a value that is no JSON',
      ['resolve', '--key', 'k', '--value', '{id:1}'],
      'Expected --value to be JSON',
    ],
    ['a value and a body', ['resolve', '--key', 'k', '--value', '1', '--body', 'x'], 'got --body too'],
    [
      'a wrong ttl',
      ['resolve', '--key', 'k', '--value', '1', '--ttl', '1 day'],
      'Expected --ttl to be a duration',
    ],
    [
      'sentinel and cluster',
      ['stats', '--cluster', '--sentinel', 'a@b:1'],
      'Expected --sentinel or --cluster',
    ],
    [
      'TLS to no sentinels',
      ['stats', '--sentinel-tls'],
      'Expected --sentinel beside --sentinel-tls, got none',
    ],
    ['a wrong sentinel', ['stats', '--sentinel', 'b:1'], 'Expected --sentinel to be NAME@HOST:PORT'],
  ])('with %s is told what was expected', async (_what, args, message) => {
    const ended = await runCli(args.length === 0 ? [] : [args[0]!, ...URL_FLAG, ...args.slice(1)]);
    expect([ended.code, ended.stdout]).toEqual([2, '']);
    expect(ended.stderr).toContain(message);
    expect(ended.stderr).toMatch(/\nHelp: npx nestjs-idempotency (\w+ )?--help\n$/);
  });

  it.each([
    ['no Redis', [], 'Expected --redis-url or REDIS_URL, got neither'],
    ['another protocol', ['--redis-url', 'http://u:hunter2@h'], 'Expected the URL of Redis to be redis://'],
    ['a raw @ in a password', ['--redis-url', 'redis://u:hunter2@:x@h:b'], 'Percent-encode'],
    ['a raw % in a password', ['--redis-url', 'redis://u:hunter2%@h'], 'to be percent-encoded'],
    ['a wrong database', ['--redis-url', 'redis://u:hunter2@h/x'], 'a database by its number'],
    ['a wrong database in a parameter', ['--redis-url', 'redis://h?db=x&password=hunter2'], 'by its number'],
    [
      'a parameter that would count for nothing',
      ['--redis-url', 'redis://h?sentinel=hunter2'],
      'no parameters but',
    ],
    ['a raw # in a password', ['--redis-url', 'redis://h/1#hunter2'], 'no fragment'],
    ['a URL out of place', ['redis://u:hunter2@h'], 'Unexpected argument that holds an @.'],
    [
      'a short secret',
      ['--redis-url', 'redis://h'],
      'Expected `secret` to be',
      { IDEMPOTENCY_SECRET: 'hunter2' },
    ],
    ['a key without id', [], 'to be id:key', { IDEMPOTENCY_ENCRYPTION_KEYS: 'hunter2' }],
    ['a short key', [], 'to be 32 bytes', { IDEMPOTENCY_ENCRYPTION_KEYS: 'id:hunter2' }],
  ] as [string, string[], string, Environment?][])(
    'with %s tells no secret',
    async (_what, args, message, env: Environment = {}) => {
      const ended = await runCli(['inspect', '--key', 'k', ...args], env);
      expect(ended.code).toBe(2);
      expect(ended.stderr).toContain(message);
      expect(ended.stderr).not.toContain('hunter2');
    },
  );
});

describe('help', () => {
  it('tells every command and exit code', async () => {
    const { code, stdout } = await built.spawn(['--help']);
    expect(code).toBe(0);
    for (const { name, summary } of COMMANDS) expect(stdout).toContain(`${name}`.padEnd(9) + summary);
    for (const line of [/^ {2}0 {2}done$/m, /^ {2}3 {2}Redis cannot be reached/m])
      expect(stdout).toMatch(line);
    expect((await runCli(['help'])).stdout).toBe(stdout);
  });

  it.each(['--version', '-v', 'version'])('%s tells the release', async name => {
    const { version } = JSON.parse(readPage('package.json')) as { version: string };
    expect(await runCli([name])).toMatchObject({ code: 0, stdout: `${version}\n` });
  });

  it.each(COMMANDS.map(command => [command.name, command] as const))('of %s', async (name, command) => {
    const { code, stdout } = await runCli([name, '--force', '--help']);
    expect(code).toBe(0);
    expect((await runCli([name, '-h'])).stdout).toBe(stdout);
    for (const flag of Object.keys(command.flags)) expect(stdout).toMatch(new RegExp(`^  --${flag}\\b`, 'm'));
    for (const example of command.examples) expect(stdout).toContain(`npx nestjs-idempotency ${example}\n`);
    const prose = stdout.split('\n').filter(line => !line.startsWith('  npx'));
    expect(Math.max(...prose.map(line => line.length))).toBeLessThan(100);
  });

  it('is that of docs/cli.md', () => {
    const page = readPage('docs/cli.md');
    for (const { name, flags } of COMMANDS) {
      expect(page).toContain(`## ${name}\n`);
      for (const flag of Object.keys(flags)) expect(page).toMatch(new RegExp(`\`--${flag}\\b`));
    }
    const flags = new Set(COMMANDS.flatMap(command => Object.keys(command.flags)));
    const told = [...page.matchAll(/`--([a-z-]+)/g)].map(([, flag]) => flag!);
    expect(told.filter(flag => !flags.has(flag))).toEqual(['version']);
  });
});

describe('output that cannot be written', () => {
  async function shell(line: string): Promise<[code: number, stderr: string]> {
    const { PATH = '' } = process.env;
    const child = execFile('/bin/bash', ['--norc', '-c', `set -o pipefail; "$NODE" "$MAIN" ${line}`], {
      env: { PATH, NODE: process.execPath, MAIN: built.file },
    });
    let stderr = '';
    child.stderr?.on('data', text => (stderr += String(text)));
    const [code] = (await once(child, 'close')) as [number];
    return [code, stderr];
  }

  it('is exit code 4 where all else is done', async () => {
    const told = expect.stringMatching(/^The output could not be written: ENOSPC/);
    expect(await shell('--help > /dev/full')).toEqual([4, told]);
    expect(await shell('release --help > /dev/full')).toEqual([4, told]);
  });

  it('leaves the exit code of a failure as it is', async () => {
    expect((await shell('stats --nothing > /dev/full'))[0]).toBe(2);
    expect((await shell('stats --redis-url redis://127.0.0.1:1 2> /dev/full'))[0]).toBe(3);
  });

  it('is no failure where its reader has seen enough', async () => {
    expect(await shell('--help | true')).toEqual([0, '']);
    expect((await shell('stats --nothing | true'))[0]).toBe(2);
  });
});
