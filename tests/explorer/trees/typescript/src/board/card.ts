import type { Lane } from './lane';

export interface Card {
  id: string;
  title: string;
}

export function moveCard(lane: Lane, card: Card, to: string): Lane {
  const rest = lane.cards.filter((c) => c.id !== card.id);
  return lane.name === to ? { ...lane, cards: [...rest, card] } : { ...lane, cards: rest };
}
