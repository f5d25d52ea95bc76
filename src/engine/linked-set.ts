/** What may be a member of one `LinkedSet` at a time. */
export interface Linked<Member> {
  before: Member | undefined;
  after: Member | undefined;
}

/**
 * Objects in the order in which they came. Entering and leaving costs four pointers, and, unlike a `Set` (see inFlightMap),
 * nothing that has left is kept alive by those that follow.
 */
export class LinkedSet<Member extends Linked<Member>> {
  size = 0;
  first: Member | undefined;
  private last: Member | undefined;

  add(member: Member): void {
    member.before = this.last;
    if (this.last === undefined) this.first = member;
    else this.last.after = member;
    this.last = member;
    this.size++;
  }

  /** `false`: it was no member. */
  delete(member: Member): boolean {
    const { before, after } = member;
    if (before === undefined && this.first !== member) return false;
    if (before === undefined) this.first = after;
    else before.after = after;
    if (after === undefined) this.last = before;
    else after.before = before;
    member.before = undefined;
    member.after = undefined;
    this.size--;
    return true;
  }

  toArray(): Member[] {
    const members: Member[] = [];
    for (let member = this.first; member !== undefined; member = member.after) members.push(member);
    return members;
  }
}
