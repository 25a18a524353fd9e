-- `told`: the tree was woken for the slot that its run was given.
alter table lane_slots add column told boolean not null default false;
create index lane_slots_untold on lane_slots (lane) where held and not told;
