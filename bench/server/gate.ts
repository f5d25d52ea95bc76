/** Handlers wait here until they are let through: so long their requests are in progress, whatever the machine does. */
export class Gate {
  private opens: (() => void)[] = [];

  get waiting(): number {
    return this.opens.length;
  }

  pass(): Promise<void> {
    return new Promise(resolve => this.opens.push(resolve));
  }

  open(): void {
    for (const open of this.opens.splice(0)) open();
  }
}
