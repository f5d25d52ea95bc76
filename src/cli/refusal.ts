import { EXIT } from './exit-codes';
import type { Output } from './io';
import type { RowDetails } from './row-details';

/** Why nothing was done; scripts read it in `--json`. */
export type RefusalReason =
  'not-found' | 'in-progress' | 'completed' | 'unreadable' | 'not-confirmed' | 'changed-meanwhile';

/** Says that nothing was done, and why. */
export function refuse(output: Output, recordKey: string, reason: RefusalReason, message: string): number {
  output.result({ recordKey, done: false, reason }, () => '');
  output.note(message);
  return EXIT.refused;
}

export function refuseUnknown(output: Output, recordKey: string, details: RowDetails): number {
  return refuse(
    output,
    recordKey,
    'not-found',
    `There is no record under ${details.redisKey(recordKey)}. It has expired or was freed, or the application has another scope, namespace, prefix or secret, or takes its keys from elsewhere (--operation, --route).`,
  );
}
