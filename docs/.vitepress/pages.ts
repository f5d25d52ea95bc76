import type { DefaultTheme } from 'vitepress';

export const nav: DefaultTheme.NavItem[] = [
  { text: 'Start', link: '/start' },
  { text: 'Guarantees', link: '/guarantees' },
  { text: 'Options', link: '/options' },
  { text: 'Errors', link: '/errors' },
  { text: 'Recipes', link: '/recipes' },
];

export const sidebar: DefaultTheme.SidebarItem[] = [
  {
    text: 'Begin',
    items: [
      { text: 'Start', link: '/start' },
      { text: 'How it works', link: '/how-it-works' },
      { text: 'Guarantees', link: '/guarantees' },
    ],
  },
  {
    text: 'Build',
    items: [
      { text: 'Options', link: '/options' },
      { text: 'Errors', link: '/errors' },
      { text: 'Recipes', link: '/recipes' },
      { text: 'Testing', link: '/testing' },
      { text: 'Storages', link: '/storages' },
    ],
  },
  {
    text: 'Run',
    items: [
      { text: 'Redis in production', link: '/redis' },
      { text: 'Operations', link: '/operations' },
      { text: 'Command line', link: '/cli' },
      { text: 'Security', link: '/security' },
    ],
  },
  {
    text: 'Decide',
    items: [
      { text: 'Benchmarks', link: '/benchmarks' },
      { text: 'Comparison', link: '/comparison' },
      { text: 'Migrating', link: '/migrating' },
      { text: 'Changelog', link: '/changelog' },
    ],
  },
];
