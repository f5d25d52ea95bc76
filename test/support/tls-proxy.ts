import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';

/** Speaks TLS for a server on 127.0.0.1 that does not, as a Redis that was built without it. Needs `openssl`. */
export class TlsProxy {
  private constructor(
    private readonly folder: string,
    private readonly server: Server,
    private readonly sockets: ReadonlySet<Socket>,
  ) {}

  static async start(targetPort: number): Promise<TlsProxy> {
    const folder = mkdtempSync(join(tmpdir(), 'nestjs-idempotency-tls-'));
    const [key, cert] = selfSigned(folder);
    const sockets = new Set<Socket>();
    const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, client => {
      const target = connect(targetPort, '127.0.0.1');
      for (const socket of [client, target]) {
        sockets.add(socket);
        socket.on('error', () => undefined);
      }
      client.pipe(target).pipe(client);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return new TlsProxy(folder, server, sockets);
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** Of 127.0.0.1, signed by itself. */
  get certificateFile(): string {
    return certificateIn(this.folder);
  }

  async stop(): Promise<void> {
    const closed = once(this.server, 'close');
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
    await closed;
    rmSync(this.folder, { recursive: true });
  }
}

function certificateIn(folder: string): string {
  return join(folder, 'certificate.pem');
}

function selfSigned(folder: string): [key: string, certificate: string] {
  const [key, certificate] = [join(folder, 'key.pem'), certificateIn(folder)];
  const kind = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const name = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
  execFileSync('openssl', ['req', ...kind, ...name, '-keyout', key, '-out', certificate], { stdio: 'pipe' });
  return [key, certificate];
}
