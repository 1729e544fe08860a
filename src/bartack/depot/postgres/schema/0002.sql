-- Nodes that take runs from a queue. A run with a pool is for nodes: it is queued, owned by one of them, rests, is held or over.
-- A run without a pool belongs to the process that a person has started for it, and no node takes it.
--
--   enqueue               gives a run to the nodes of a pool, or back to them
--   join_fleet, beat_fleet, drain   the life of a node that takes runs
--   claim                 takes runs for a node, by pool, labels, priority and age; raises the fence
--   bury                  the only way in which a run changes its owner against the will of the owner
--   hold                  keeps a run from being taken of which this database has lost entries
--   give_back, progressed what becomes of a run that a node does not run any more; that a run has come further

ALTER TABLE bartack.node
  ADD pools text[] COLLATE "C" NOT NULL DEFAULT '{}',
  ADD labels text[] COLLATE "C" NOT NULL DEFAULT '{}',
  ADD steady timestamptz NOT NULL DEFAULT clock_timestamp(),
  ADD hurries bool NOT NULL DEFAULT false;

ALTER TABLE bartack.owner
  ADD pool text COLLATE "C",
  ADD priority smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
  ADD needs text[] COLLATE "C" NOT NULL DEFAULT '{}',
  ADD refused int[] NOT NULL DEFAULT '{}',
  ADD due timestamptz,
  ADD strikes smallint NOT NULL DEFAULT 0,
  ADD before text NOT NULL DEFAULT 'resting';
CREATE INDEX ON bartack.owner (pool, priority DESC, run) WHERE state = 'queued';
CREATE INDEX ON bartack.owner (due) WHERE state = 'resting' AND due IS NOT NULL;

-- Gives a run to the nodes of a pool. One that is owned stays with its owner, and is one of the pool from then on.
CREATE FUNCTION bartack.enqueue(its_run bigint, its_pool text, its_priority int, its_needs text[])
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE mine bartack.owner;
BEGIN
  SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run FOR UPDATE;
  IF NOT FOUND THEN RETURN 'gone'; END IF;
  IF mine.state = 'held' AND starts_with(mine.reason, 'pulled to ') THEN RETURN 'pulled'; END IF;
  UPDATE bartack.owner o SET pool = coalesce(its_pool, o.pool, 'default'), priority = coalesce(its_priority, o.priority),
    needs = coalesce(its_needs, o.needs),
    state = CASE WHEN o.state = 'owned' THEN 'owned' ELSE 'queued' END,
    refused = '{}', due = NULL, reason = '',
    strikes = CASE WHEN o.state = 'held' THEN 0 ELSE o.strikes END
  WHERE o.run = its_run;
  PERFORM pg_notify('bartack_runs', '');
  RETURN CASE WHEN mine.state = 'owned' THEN 'owned' ELSE 'queued' END;
END $$;

-- Declares nodes dead, and frees their runs under higher fences: from here on nothing of theirs is accepted. A run that was with
-- three dead nodes in a row, and has not come further with any of them, is held.
CREATE OR REPLACE FUNCTION bartack.bury(ids int[], why text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner WHERE node = ANY (ids) ORDER BY run FOR UPDATE;
  UPDATE bartack.node SET state = 'dead' WHERE id = ANY (ids) AND state IN ('live', 'draining');
  UPDATE bartack.owner o SET
    state = CASE WHEN o.pool IS NULL THEN 'resting' WHEN NOT o.alive THEN o.before
      WHEN o.strikes < 2 THEN 'queued' ELSE 'held' END,
    strikes = CASE WHEN o.pool IS NOT NULL AND o.alive THEN o.strikes + 1 ELSE o.strikes END,
    reason = CASE WHEN o.pool IS NOT NULL AND o.alive AND o.strikes >= 2
      THEN 'its node died for the third time, and no step was finished in between' ELSE why END,
    fence = o.fence + 1, node = NULL, alive = false,
    seen = CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END
  FROM bartack.node n WHERE n.id = o.node AND n.id = ANY (ids);
  PERFORM pg_notify('bartack_runs', '');
END $$;

-- A new node that takes runs. The caller has the lock of the seat, so earlier ones of the seat and this start of the host are gone.
CREATE FUNCTION bartack.join_fleet(its_name text, its_seat uuid, its_boot text, its_version text, its_slots int, lease_s float8,
  its_pools text[], its_labels text[]) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int;
BEGIN
  made := bartack.join_node(its_name, its_seat, its_boot, its_version, its_slots, lease_s);
  UPDATE bartack.node SET pools = its_pools, labels = its_labels WHERE id = made;
  RETURN made;
END $$;

-- Renews the lease of a node, and does what is due for all. Only a steady node buries: one whose own beats came without a gap of
-- half a lease for a whole lease. After the database was away no node is steady, so all of them renew first.
CREATE FUNCTION bartack.beat_fleet(me int)
RETURNS TABLE (state text, now_us bigint, buried int[], queued bool) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.node; c timestamptz := clock_timestamp(); dead int[];
BEGIN
  SET LOCAL synchronous_commit = off;
  UPDATE bartack.node n SET steady = CASE WHEN n.until - n.lease < c - n.lease / 2 THEN c ELSE n.steady END, until = c + n.lease
    WHERE n.id = me AND n.state IN ('live', 'draining') RETURNING n.* INTO mine;
  IF NOT FOUND THEN
    RETURN QUERY SELECT n.state, (extract(epoch FROM c) * 1e6)::bigint, NULL::int[], false FROM bartack.node n WHERE n.id = me;
    RETURN;
  END IF;
  IF mine.steady < c - mine.lease THEN
    -- Nodes of one run have no slots: their process may be a person's, and gets more time.
    SELECT array_agg(n.id ORDER BY n.id) INTO dead FROM bartack.node n
      WHERE n.state IN ('live', 'draining') AND n.until + CASE WHEN n.slots = 0 THEN interval '30 s' ELSE interval '0' END < c;
    IF dead IS NOT NULL THEN
      -- Owners are locked before nodes, and a node that has renewed its lease meanwhile is left alone.
      PERFORM 1 FROM bartack.owner o WHERE o.node = ANY (dead) ORDER BY o.run FOR UPDATE;
      SELECT array_agg(d.id ORDER BY d.id) INTO dead FROM (SELECT n.id FROM bartack.node n
        WHERE n.id = ANY (dead) AND n.state IN ('live', 'draining')
          AND n.until + CASE WHEN n.slots = 0 THEN interval '30 s' ELSE interval '0' END < c
        ORDER BY n.id FOR UPDATE SKIP LOCKED) d;
      IF dead IS NOT NULL THEN PERFORM bartack.bury(dead, 'its node died'); END IF;
    END IF;
  END IF;
  UPDATE bartack.owner o SET state = 'queued', due = NULL WHERE o.run IN (SELECT r.run FROM bartack.owner r
    WHERE r.state = 'resting' AND r.due <= c ORDER BY r.due LIMIT 100 FOR UPDATE SKIP LOCKED);
  RETURN QUERY SELECT mine.state, (extract(epoch FROM c) * 1e6)::bigint, dead,
    EXISTS (SELECT 1 FROM bartack.owner o WHERE o.state = 'queued' AND o.pool = ANY (mine.pools));
END $$;

-- A node takes no more runs, and ends when those that it has have no step in flight. In a hurry it does not wait for that.
CREATE FUNCTION bartack.drain(its_name text, now bool DEFAULT false) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE n int;
BEGIN
  UPDATE bartack.node SET state = 'draining', hurries = hurries OR now WHERE name = its_name AND slots > 0
    AND (state = 'live' OR (now AND state = 'draining'));
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;

CREATE FUNCTION bartack.claim(me int, most int)
RETURNS TABLE (run bigint, id text, team text, fence int, strikes int, seen_us bigint) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE n bartack.node; c record;
BEGIN
  FOR c IN SELECT o.run FROM bartack.owner o, bartack.node x
      WHERE x.id = me AND o.state = 'queued' AND o.pool = ANY (x.pools) AND o.needs <@ x.labels AND me <> ALL (o.refused)
        AND (o.due IS NULL OR o.due <= clock_timestamp())
      ORDER BY o.priority DESC, o.run LIMIT most FOR UPDATE OF o SKIP LOCKED LOOP
    SELECT * INTO n FROM bartack.node WHERE id = me AND state = 'live' FOR SHARE;
    IF NOT FOUND THEN RETURN; END IF;
    RETURN QUERY UPDATE bartack.owner o SET state = 'owned', before = 'queued', fence = o.fence + 1, node = me, alive = false,
      due = NULL, reason = '' FROM bartack.run r WHERE o.run = c.run AND r.no = o.run
      RETURNING o.run, r.id, r.team, o.fence, o.strikes::int, (extract(epoch FROM o.seen) * 1e6)::bigint;
  END LOOP;
END $$;

-- Ends an ownership in order. "refuses": this node does not take it again; refused by all live nodes of its pool it is held.
CREATE FUNCTION bartack.give_back(its_run bigint, its_fence int, to_state text, due_us bigint, why text, its_strikes int, refuses bool)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.owner; outcome text := to_state;
BEGIN
  SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF refuses THEN
    mine.refused := mine.refused || mine.node;
    IF NOT EXISTS (SELECT 1 FROM bartack.node n WHERE n.state = 'live' AND n.slots > 0 AND n.until > clock_timestamp()
        AND mine.pool = ANY (n.pools) AND mine.needs <@ n.labels AND n.id <> ALL (mine.refused)) THEN
      outcome := 'held';
    END IF;
  END IF;
  UPDATE bartack.owner o SET state = outcome, fence = o.fence + 1, node = NULL, alive = false, reason = why, strikes = its_strikes,
    refused = mine.refused, due = CASE WHEN due_us > 0 THEN to_timestamp(due_us / 1e6) END,
    seen = CASE WHEN mine.alive THEN clock_timestamp() ELSE o.seen END
  WHERE o.run = its_run;
  IF outcome = 'queued' THEN PERFORM pg_notify('bartack_runs', ''); END IF;
  RETURN outcome;
END $$;

-- The owner of a run knows entries that this database has lost. Nothing takes the run before a person has decided. The fence is higher
-- than all that were given before, also those that this database does not know. False if another node owns the run by now; if that
-- was given the same fence again, two owners could append, so the run is taken from both.
CREATE FUNCTION bartack.hold(its_run bigint, its_fence int, why text) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  UPDATE bartack.owner o SET state = 'held', fence = greatest(o.fence, its_fence) + 1, node = NULL, alive = false, due = NULL,
    reason = why WHERE o.run = its_run AND (o.state <> 'owned' OR o.fence = its_fence);
  RETURN FOUND;
END $$;

-- A step was finished: the deaths of nodes before that are not the run's fault.
CREATE FUNCTION bartack.progressed(its_run bigint, its_fence int) RETURNS void LANGUAGE sql SET search_path = pg_catalog AS $$
  UPDATE bartack.owner SET strikes = 0 WHERE run = $1 AND fence = $2 AND state = 'owned' AND strikes > 0 $$;

-- As before, but a process that owns a run for a moment leaves it in the state in which it was.
CREATE OR REPLACE FUNCTION bartack.claim_run(me int, its_run bigint, grace_s float8)
RETURNS TABLE (outcome text, fence int, owner text, wait_s float8) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.owner; other bartack.node; c timestamptz;
BEGIN
  SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run FOR UPDATE;
  IF NOT FOUND THEN RETURN QUERY SELECT 'gone', 0, '', 0::float8; RETURN; END IF;
  PERFORM 1 FROM bartack.node WHERE id = me AND state = 'live' FOR SHARE;
  IF NOT FOUND THEN RETURN QUERY SELECT 'dead', 0, '', 0::float8; RETURN; END IF;
  IF mine.state = 'held' AND starts_with(mine.reason, 'pulled to ')
      AND mine.reason <> (SELECT 'pulled to ' || seat FROM bartack.node WHERE id = me) THEN
    RETURN QUERY SELECT 'held', mine.fence, mine.reason, 0::float8;
    RETURN;
  END IF;
  IF mine.node = me THEN RETURN QUERY SELECT 'claimed', mine.fence, '', 0::float8; RETURN; END IF;
  IF mine.state = 'owned' THEN
    c := clock_timestamp();
    SELECT * INTO other FROM bartack.node WHERE id = mine.node;
    IF other.until + make_interval(secs => grace_s) < c THEN
      -- It may be renewing its lease at this moment: then it is left alone. Owners are locked before nodes.
      PERFORM 1 FROM bartack.owner o WHERE o.node = other.id ORDER BY o.run FOR UPDATE;
      SELECT * INTO other FROM bartack.node WHERE id = mine.node FOR UPDATE;
    END IF;
    IF other.until + make_interval(secs => grace_s) >= c THEN
      RETURN QUERY SELECT 'owned', mine.fence, other.name,
        extract(epoch FROM other.until + make_interval(secs => grace_s) - c)::float8;
      RETURN;
    END IF;
    PERFORM bartack.bury(ARRAY[other.id], 'its node died');
    SELECT * INTO mine FROM bartack.owner o WHERE o.run = its_run;
  END IF;
  RETURN QUERY UPDATE bartack.owner o SET state = 'owned', before = mine.state, fence = o.fence + 1, node = me, alive = false,
    reason = '' WHERE o.run = its_run RETURNING 'claimed', o.fence, '', 0::float8;
END $$;

CREATE OR REPLACE FUNCTION bartack.release(its_run bigint, its_fence int, to_state text, why text) RETURNS bool LANGUAGE sql
SET search_path = pg_catalog AS $$
  UPDATE bartack.owner o SET fence = o.fence + 1, node = NULL, alive = false, reason = why,
    state = CASE WHEN to_state = 'resting' AND o.pool IS NOT NULL AND NOT o.alive THEN o.before ELSE to_state END,
    seen = CASE WHEN o.alive THEN n.until - n.lease ELSE o.seen END
  FROM bartack.node n WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' AND n.id = o.node RETURNING true $$;
