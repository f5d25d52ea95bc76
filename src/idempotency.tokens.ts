/** Injection tokens. `Symbol.for` makes them the same in every copy of the package that one process loads. */
export const MODULE_SETTINGS = Symbol.for('nestjs-idempotency.settings');
