/** Injection token. Another copy of the package in this process has one of its own, and with it its own options. */
export const MODULE_SETTINGS = Symbol('nestjs-idempotency.settings');
