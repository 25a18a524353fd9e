-- Whose a tree is: the user of its root's origin, '' for nobody's. Slots of shared lanes are given to tenants in turn.
alter table trees add column tenant text not null default '';
alter table lane_slots add column tenant text not null default '';
