import { change } from '../change';
import type { Command } from '../command';
import { settingsOf } from '../desk';
import { CONFIRMATION_FLAGS, CONNECTION_FLAGS, NAME_FLAGS, OUTPUT_FLAGS } from '../flags';

export const remove: Command = {
  name: 'delete',
  summary: 'Removes a record, whatever its state: letter (f) of the guarantee.',
  notes: [
    'The only way to be rid of a completed record, or of one that cannot be read. The next request with its key runs.',
  ],
  flags: { ...NAME_FLAGS, ...CONFIRMATION_FLAGS, ...CONNECTION_FLAGS, ...OUTPUT_FLAGS },
  examples: [
    'delete --key 6f1b2c1e --scope user-1',
    'delete --record-key vGNe0hVPRzBzT5nYqHnwEbgGmMjYlQq9vX3vnQ2pX0A --yes',
  ],
  async run(args, io) {
    return change(args, io, settingsOf(args, io), {
      done: 'Deleted',
      consequence: ({ state }) =>
        state === 'in-progress'
          ? 'Its handler may still run, and once the record is deleted another one may run beside it: letter (f).'
          : 'Once it is deleted, the next request with its key runs: letter (f).',
      act: ({ service }, { recordKey }) => service.delete({ recordKey }),
    });
  },
};
