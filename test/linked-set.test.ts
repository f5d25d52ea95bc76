import fc from 'fast-check';
import { LinkedSet, type Linked } from '../src/engine/linked-set';

class Member implements Linked<Member> {
  before: Member | undefined;
  after: Member | undefined;

  constructor(readonly name: number) {}
}

const SOME_STEPS = fc.array(fc.record({ member: fc.nat(7), enters: fc.boolean() }), { maxLength: 60 });

describe('A LinkedSet', () => {
  it('holds what a Set would hold, in the same order, whoever enters and leaves', () => {
    fc.assert(
      fc.property(SOME_STEPS, steps => {
        const members = Array.from({ length: 8 }, (_, name) => new Member(name));
        const linked = new LinkedSet<Member>();
        const model = new Set<Member>();
        for (const { member: name, enters } of steps) {
          const member = members[name] as Member;
          if (!enters) expect(linked.delete(member)).toBe(model.delete(member));
          else if (!model.has(member)) {
            linked.add(member);
            model.add(member);
          }
          expect(linked.toArray()).toEqual([...model]);
          expect(linked.size).toBe(model.size);
        }
      }),
      { seed: 20261121 },
    );
  });

  it('leaves nothing behind on who has left, so that it keeps nobody alive', () => {
    const linked = new LinkedSet<Member>();
    const [one, other] = [new Member(1), new Member(2)];
    linked.add(one);
    linked.add(other);
    linked.delete(one);
    expect(one).toMatchObject({ before: undefined, after: undefined });
    expect(other.before).toBeUndefined();
    expect(linked.first).toBe(other);
  });
});
