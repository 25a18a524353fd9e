import { Board, Change } from '../board/board';

export class WireError extends Error {}

export function decode(text: string, board: Board): Board {
  const change = JSON.parse(text) as Change;
  const card = board.cards.find((c) => c.id === change.card);
  if (!card) {
    throw new WireError(`no card ${change.card}`);
  }
  return board.move(card, change.to);
}
