import type { ExecutionContext } from '@nestjs/common';

/** Position of the argument that belongs to one call alone: the RPC context, and the info of a GraphQL resolver. */
const OWN_ARGUMENT: Readonly<Record<string, number>> = { http: 0, rpc: 1, graphql: 3 };

/** The object that stands for one call: what is remembered of the call is remembered on it. */
export function callObject(context: ExecutionContext): object | undefined {
  const argument: unknown = context.getArgByIndex(OWN_ARGUMENT[context.getType<string>()] ?? 0);
  return typeof argument === 'object' && argument !== null ? argument : undefined;
}
