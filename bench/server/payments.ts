/** About 1 kB as JSON, made anew for every request as a handler would make it. */
export function receipt(payment: unknown): object {
  return {
    id: 'pay_01JD3M7Y8Q2V5W9X0Z4T6R8N1B',
    object: 'payment',
    status: 'succeeded',
    payment,
    fee: { amount: 1_299, currency: 'EUR', rate: 0.01 },
    createdAt: '2026-11-21T08:30:00.000Z',
    customer: { id: 'cus_7f3a9c', name: 'Ada Lovelace', email: 'ada@example.org', country: 'GB' },
    lines: [
      { sku: 'A-100', quantity: 2, unitPrice: 19_900, description: 'Analytical engine, reading device' },
      { sku: 'B-200', quantity: 1, unitPrice: 59_900, description: 'Analytical engine, mill with store' },
      { sku: 'C-300', quantity: 3, unitPrice: 10_000, description: 'Punched cards, packet of a thousand' },
    ],
    address: { street: '12 St James Square', city: 'London', postcode: 'SW1Y 4JH', country: 'GB' },
    links: {
      self: '/payments/pay_01JD3M7Y8Q2V5W9X0Z4T6R8N1B',
      refund: '/payments/pay_01JD3M7Y8Q2V5W9X0Z4T6R8N1B/refunds',
    },
    note: 'Paid by card ending 4242. Thank you for your order, it leaves our house today.',
  };
}
