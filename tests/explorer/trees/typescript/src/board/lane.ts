import type { Card } from './card';

export interface Lane {
  name: string;
  cards: Card[];
}
