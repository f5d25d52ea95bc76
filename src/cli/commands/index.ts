import type { Command } from '../command';
import { remove } from './delete';
import { inspect } from './inspect';
import { release } from './release';
import { resolve } from './resolve';
import { stats } from './stats';

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [inspect, release, resolve, remove, stats];
