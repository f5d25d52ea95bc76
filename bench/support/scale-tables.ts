import type { ScaleFigures } from './scale-figures';
import { duration } from './storage-tables';
import { micros, print, table } from './table';

export function printScale({ records, bodies, duplicates, processes }: ScaleFigures): void {
  print('\nMemoryStorage by the number of its records (100 B bodies)\n');
  print(
    table(
      ['Records', 'create+complete', 'get', 'delete', 'bytes a record', 'full GC'],
      records.map(row => [
        row.records.toLocaleString('en'),
        duration(row.createAndComplete),
        duration(row.get),
        duration(row.delete),
        row.bytes.toFixed(0),
        `${row.collection.toFixed(0)} ms`,
      ]),
    ),
  );
  print('\nBy the size of the body\n');
  print(
    table(
      ['Bytes', 'fingerprint', 'stable JSON + SHA-256', 'store', 'replay'],
      bodies.map(({ bytes, ...tasks }) => [
        bytes.toLocaleString('en'),
        ...[tasks.fingerprint, tasks.reference, tasks.store, tasks.replay].map(({ median }) =>
          duration(median),
        ),
      ]),
    ),
  );
  print('\nRequests with one key at once, handler of 500 ms, Memory\n');
  print(
    table(
      ['Requests', 'executions', 'until the last answer', 'server CPU each'],
      duplicates.map(row => [
        `${String(row.duplicates).padEnd(6)} ${row.behaviour}`,
        String(row.executions),
        `${row.wallMs.toFixed(0)} ms`,
        row.cpu === undefined ? '' : `${micros(row.cpu)} µs`,
      ]),
    ),
  );
  if (processes.length === 0) return;
  print('\nProcesses on one Redis, first requests, 8 at a time to each\n');
  print(
    table(
      ['Processes', 'requests a second', 'CPU each', 'shared keys', 'executions'],
      processes.map(row => [
        String(row.processes),
        Math.round(row.perSecond).toLocaleString('en'),
        `${micros(row.cpu)} µs`,
        String(row.sharedKeys),
        String(row.executions),
      ]),
    ),
  );
}
