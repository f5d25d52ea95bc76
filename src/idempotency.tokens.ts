/** Injection token. Another copy of the package in this process has one of its own, and with it its own options. */
export const MODULE_SETTINGS = Symbol('nestjs-idempotency.settings');

/** Provided by the module, and made by nothing that can fail: where it is not found, the module is not there. */
export const MODULE_PRESENT = Symbol('nestjs-idempotency.present');
