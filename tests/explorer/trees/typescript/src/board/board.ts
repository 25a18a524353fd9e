// A board is lanes of cards; every change is a new board.
import { Card, moveCard } from './card';
import { Lane } from './lane';

export class Board {
  constructor(readonly lanes: Lane[]) {}

  move(card: Card, to: string): Board {
    return new Board(this.lanes.map((lane) => moveCard(lane, card, to)));
  }

  get cards(): Card[] {
    return this.lanes.flatMap((lane) => lane.cards);
  }
}

export type Change = { card: string; to: string; by: string };
