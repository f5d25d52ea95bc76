import { Session, type Profiler as V8Profiler } from 'node:inspector/promises';

/** A CPU profile of this process, as `--cpu-prof` would write it, but of the measured part alone. */
export class Profiler {
  private readonly session = new Session();

  async start(): Promise<void> {
    this.session.connect();
    await this.session.post('Profiler.enable');
    await this.session.post('Profiler.setSamplingInterval', { interval: 100 });
    await this.session.post('Profiler.start');
  }

  async stop(): Promise<V8Profiler.Profile> {
    const { profile } = await this.session.post('Profiler.stop');
    this.session.disconnect();
    return profile;
  }
}
