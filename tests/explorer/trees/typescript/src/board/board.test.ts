import { expect, it } from 'vitest';
import { Board } from './board';

it('moves a card to another lane', () => {
  const card = { id: '1', title: 'Opening' };
  const board = new Board([{ name: 'a', cards: [card] }, { name: 'b', cards: [] }]);
  expect(board.move(card, 'b').lanes[1].cards).toEqual([card]);
});

it('knows all its cards', () => {
  expect(new Board([]).cards).toEqual([]);
});
