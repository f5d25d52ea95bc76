import { change, refuseUnlessHeld } from '../change';
import type { Command } from '../command';
import { settingsOf } from '../desk';
import { CONFIRMATION_FLAGS, CONNECTION_FLAGS, NAME_FLAGS, OUTPUT_FLAGS } from '../flags';
import type { Sighting } from '../sighting';

export const release: Command = {
  name: 'release',
  summary: 'Frees a held key, so that the next request runs: letter (f) of the guarantee.',
  notes: [
    'First find out what became of the run: if it has had its effect, the next one repeats it.',
    'With --force a key in progress is freed too. Its handler may still run, and so may another then; an owner that lives claims the key again when it extends or completes, unless another request has done so.',
  ],
  flags: {
    ...NAME_FLAGS,
    force: { help: 'frees a key in progress too, whose handler may still run: letter (f)' },
    ...CONFIRMATION_FLAGS,
    ...CONNECTION_FLAGS,
    ...OUTPUT_FLAGS,
  },
  examples: [
    'release --key 6f1b2c1e --scope user-1',
    'release --key order-7 --operation charge --yes --json',
  ],
  async run(args, io) {
    return change(args, io, settingsOf(args, io), {
      done: 'Freed',
      refusal: seen => refuseUnlessHeld(seen, args.isSet('force')),
      consequence,
      act: ({ service }, { recordKey, state }) =>
        service.release({ recordKey }, { force: state === 'in-progress' }),
    });
  },
};

function consequence({ state }: Sighting): string {
  return state === 'in-progress'
    ? 'Its handler may still run, and once the key is freed another one may run beside it: letter (f).'
    : 'Once it is freed, the next request with its key runs: letter (f).';
}
