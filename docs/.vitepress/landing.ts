import type { PageData } from 'vitepress';

/** What stands above README.md on the site; in the file itself GitHub would print it as a table. */
export function landing(description: string): Partial<PageData> {
  return {
    title: 'nestjs-idempotency',
    titleTemplate: 'Idempotency for NestJS',
    frontmatter: {
      layout: 'home',
      hero: {
        name: '@Idempotent()',
        text: 'A retry does its work once.',
        tagline: description,
        image: { src: '/logo.svg', alt: '' },
        actions: [
          { theme: 'brand', text: 'Start in five minutes', link: '/start' },
          { theme: 'alt', text: 'What is guaranteed', link: '/guarantees' },
        ],
      },
      features: [
        {
          title: 'Exact',
          details:
            'Status, headers and bytes as they left the server: below serializers, filters, @Res() handlers and streams, on Express and Fastify.',
          link: '/how-it-works',
          linkText: 'How it works',
        },
        {
          title: 'Honest',
          details: 'At most one handler in one record life, and nine letters for every way to a second run.',
          link: '/guarantees',
          linkText: 'Guarantees',
        },
        {
          title: 'Built for failure',
          details:
            'Leases with a heartbeat, keys that are held where nobody knows, storages that hang, crashes, rolling deployments.',
          link: '/redis',
          linkText: 'Redis in production',
        },
      ],
    },
  };
}
