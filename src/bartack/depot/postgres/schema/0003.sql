-- Operating a fleet: limits of teams, versions side by side, schedules, and work that is due for all.
--
--   set_team, count_running   how many runs of a team have an owner at once; the counter follows every change of an owner
--   stamp_owner               a run goes to nodes that read its journal, and never back to older ones; since when a run is queued
--   claim                     as before, within these limits
--   join_node, join_fleet     as before; a node says which journals it reads, and which tables it knows
--   submit                    as before; a key that the team knows returns the run that is there
--   report                    what a node measures of itself
--   do_chore, note_chore      takes one piece of work that is due, unless another node does it; what became of one without an answer
--   remove, drop_journal      as before, in pieces: a run is gone at once, and its journal in batches after that
--   restored                  nothing that owned a run before the backup was made owns it now
--
-- Locks are taken in this order everywhere: the table "owner" as a whole, rows of "owner", of "node", of "team".

ALTER TABLE bartack.team
  ADD max_running int CHECK (max_running >= 0),
  ADD running int NOT NULL DEFAULT 0 CHECK (running >= 0);

ALTER TABLE bartack.node
  ADD reads int NOT NULL DEFAULT 1,
  ADD knows int NOT NULL DEFAULT 2,
  ADD beat_us bigint,
  ADD appends bigint NOT NULL DEFAULT 0,
  ADD statements bigint NOT NULL DEFAULT 0;

ALTER TABLE bartack.owner
  ADD reads int NOT NULL DEFAULT 1,
  ADD queued timestamptz;

ALTER TABLE bartack.run ADD key text COLLATE "C";
CREATE UNIQUE INDEX ON bartack.run (team, key) WHERE key IS NOT NULL;

-- The condition of the first one has to be in a query, and in none of foreign keys it is.
DROP INDEX bartack.owner_node_idx;
CREATE INDEX ON bartack.owner (node) WHERE node IS NOT NULL;

-- Only teams with a limit are counted: the row of another one would be written by every change of an owner in it.
CREATE FUNCTION bartack.count_running() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE t record;
BEGIN
  FOR t IN SELECT r.team, sum((a.state = 'owned')::int - (b.state = 'owned')::int) AS more
      FROM after_change a JOIN before_change b USING (run) JOIN bartack.run r ON r.no = a.run
      WHERE (a.state = 'owned') <> (b.state = 'owned') GROUP BY r.team ORDER BY r.team LOOP
    UPDATE bartack.team SET running = running + t.more WHERE name = t.team AND max_running IS NOT NULL AND t.more <> 0;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER count_running AFTER UPDATE ON bartack.owner REFERENCING OLD TABLE AS before_change NEW TABLE AS after_change
  FOR EACH STATEMENT EXECUTE FUNCTION bartack.count_running();

CREATE FUNCTION bartack.stamp_owner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE level int;
BEGIN
  IF NEW.state = 'queued' AND OLD.state <> 'queued' THEN NEW.queued := clock_timestamp(); END IF;
  IF NEW.node IS NOT NULL AND NEW.node IS DISTINCT FROM OLD.node THEN
    SELECT n.reads INTO level FROM bartack.node n WHERE n.id = NEW.node;
    IF level < OLD.reads THEN
      RAISE EXCEPTION 'a newer version of Bartack has continued this run; it does not go back to one that may misread it'
        USING ERRCODE = 'BT001';
    END IF;
    NEW.reads := level;
  END IF;
  RETURN NEW;
END $$;
-- Its name comes after those of others that change the state.
CREATE TRIGGER stamp_owner BEFORE UPDATE ON bartack.owner FOR EACH ROW
  WHEN (NEW.state IS DISTINCT FROM OLD.state OR NEW.node IS DISTINCT FROM OLD.node) EXECUTE FUNCTION bartack.stamp_owner();

-- Makes a team, or changes how many of its runs have an owner at once; NULL: any number. No owner changes while they are counted.
CREATE FUNCTION bartack.set_team(its_name text, its_max int) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  LOCK TABLE bartack.owner IN SHARE MODE;
  INSERT INTO bartack.team (name) VALUES (its_name) ON CONFLICT DO NOTHING;
  UPDATE bartack.team SET max_running = its_max, running = CASE WHEN its_max IS NULL THEN 0 ELSE
    (SELECT count(*) FROM bartack.owner o JOIN bartack.run r ON r.no = o.run WHERE o.state = 'owned' AND r.team = its_name) END
  WHERE name = its_name;
  PERFORM pg_notify('bartack_runs', '');
END $$;

CREATE OR REPLACE FUNCTION bartack.claim(me int, most int)
RETURNS TABLE (run bigint, id text, team text, fence int, strikes int, seen_us bigint) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE n bartack.node; c record; got int := 0; is_limited bool;
BEGIN
  LOCK TABLE bartack.owner IN ROW EXCLUSIVE MODE;
  -- No row of "owner" is waited for here, so the node may be locked first.
  SELECT * INTO n FROM bartack.node WHERE id = me AND state = 'live' FOR SHARE;
  IF NOT FOUND OR NOT EXISTS (SELECT 1 FROM bartack.owner o WHERE o.state = 'queued' AND o.pool = ANY (n.pools)) THEN RETURN; END IF;
  PERFORM 1 FROM bartack.team t WHERE t.max_running IS NOT NULL ORDER BY t.name FOR NO KEY UPDATE;
  is_limited := FOUND;
  FOR c IN SELECT o.run, t.name, t.max_running FROM bartack.owner o JOIN bartack.run r ON r.no = o.run JOIN bartack.team t ON t.name = r.team
      WHERE o.state = 'queued' AND o.pool = ANY (n.pools) AND o.needs <@ n.labels AND o.reads <= n.reads AND me <> ALL (o.refused)
        AND (o.due IS NULL OR o.due <= clock_timestamp()) AND (t.max_running IS NULL OR t.running < t.max_running)
      ORDER BY o.priority DESC, o.run LIMIT CASE WHEN is_limited THEN most * 4 ELSE most END FOR UPDATE OF o SKIP LOCKED LOOP
    EXIT WHEN got >= most;
    CONTINUE WHEN c.max_running IS NOT NULL
      AND EXISTS (SELECT 1 FROM bartack.team t WHERE t.name = c.name AND t.running >= t.max_running);
    got := got + 1;
    RETURN QUERY UPDATE bartack.owner o SET state = 'owned', before = 'queued', fence = o.fence + 1, node = me, alive = false,
      due = NULL, reason = '' FROM bartack.run r WHERE o.run = c.run AND r.no = o.run
      RETURNING o.run, r.id, r.team, o.fence, o.strikes::int, (extract(epoch FROM o.seen) * 1e6)::bigint;
  END LOOP;
END $$;

CREATE FUNCTION bartack.join_node(its_name text, its_seat uuid, its_boot text, its_version text, its_slots int, lease_s float8,
  its_reads int, its_knows int) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int;
BEGIN
  made := bartack.join_node(its_name, its_seat, its_boot, its_version, its_slots, lease_s);
  UPDATE bartack.node SET reads = its_reads, knows = its_knows WHERE id = made;
  RETURN made;
END $$;

CREATE FUNCTION bartack.join_fleet(its_name text, its_seat uuid, its_boot text, its_version text, its_slots int, lease_s float8,
  its_pools text[], its_labels text[], its_reads int, its_knows int) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int;
BEGIN
  made := bartack.join_fleet(its_name, its_seat, its_boot, its_version, its_slots, lease_s, its_pools, its_labels);
  UPDATE bartack.node SET reads = its_reads, knows = its_knows WHERE id = made;
  RETURN made;
END $$;

-- A run with its first commit, and its key if it has one. Nothing is made if there is a run of this id (known is empty) or of this
-- key in the team (known is its id).
CREATE FUNCTION bartack.submit(name text, its_team text, last bigint, crc bigint, lines bytea, alive_us bigint, its_key text)
RETURNS TABLE (made bigint, known text) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  -- A submission with the same key waits here for the other one.
  IF its_key IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtext('bartack.key'), hashtext(its_team || chr(10) || its_key));
    SELECT r.id INTO known FROM bartack.run r WHERE r.team = its_team AND r.key = its_key;
    IF FOUND THEN RETURN NEXT; RETURN; END IF;
  END IF;
  known := '';
  made := bartack.submit(name, its_team, last, crc, lines, alive_us);
  IF made IS NOT NULL AND its_key IS NOT NULL THEN UPDATE bartack.run SET key = its_key WHERE no = made; END IF;
  RETURN NEXT;
END $$;

CREATE FUNCTION bartack.report(me int, its_beat_us bigint, its_appends bigint, its_statements bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  SET LOCAL synchronous_commit = off;
  UPDATE bartack.node SET beat_us = its_beat_us, appends = its_appends, statements = its_statements WHERE id = me;
END $$;

-- Attaching a partition, other than making one in its place, does not wait for those who read and write the others.
CREATE OR REPLACE FUNCTION bartack.make_partition(of_run bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE part bigint := of_run / 100000; made text := format('bartack.journal_%s', of_run / 100000);
BEGIN
  IF to_regclass(made) IS NULL THEN
    PERFORM pg_advisory_xact_lock(hashtext('bartack.journal'));
    IF to_regclass(made) IS NOT NULL THEN RETURN; END IF;
    EXECUTE format('CREATE TABLE %s (LIKE bartack.journal INCLUDING ALL)', made);
    EXECUTE format('ALTER TABLE bartack.journal ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)',
      made, part * 100000, (part + 1) * 100000);
  END IF;
END $$;

-- A run that is made again and again. "job", "program" and "copy" (the workspace, a large value of the team) are what a run is made of,
-- so that no code is executed to make one.
CREATE TABLE bartack.schedule (
  name text COLLATE "C" PRIMARY KEY,
  team text COLLATE "C" NOT NULL REFERENCES bartack.team,
  cron text NOT NULL,
  zone text NOT NULL,
  words text[] NOT NULL,
  pool text COLLATE "C" NOT NULL,
  priority smallint NOT NULL,
  needs text[] COLLATE "C" NOT NULL,
  overlap bool NOT NULL,
  job bytea NOT NULL,
  program bytea NOT NULL,
  copy bytea,
  next timestamptz NOT NULL,
  last_run text NOT NULL DEFAULT '',
  last_at timestamptz,
  problem text NOT NULL DEFAULT '',
  added_by text NOT NULL DEFAULT session_user,
  FOREIGN KEY (team, copy) REFERENCES bartack.content);
CREATE INDEX ON bartack.schedule (next);
CREATE INDEX ON bartack.schedule (team, copy);

CREATE TABLE bartack.chore (
  name text COLLATE "C" PRIMARY KEY,
  every interval NOT NULL,
  due timestamptz NOT NULL DEFAULT clock_timestamp(),
  done timestamptz,
  problem text NOT NULL DEFAULT '');
INSERT INTO bartack.chore (name, every) VALUES ('partition', '10 minutes'), ('content', '1 hour'), ('requests', '1 minute'),
  ('nodes', '1 hour'), ('removed', '10 minutes'), ('journals', '1 day');

-- Large values that no run and no schedule holds, and that nothing has touched for a day. A run that begins to hold one touches it
-- first. Returns whether there may be more: one statement deletes 256 MiB, or one value that is larger.
CREATE FUNCTION bartack.drop_content(most int) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE found_n int; dropped int;
BEGIN
  WITH old AS MATERIALIZED (SELECT d.team, d.sha256, d.size FROM bartack.content d
    WHERE d.touched < clock_timestamp() - interval '1 day'
      AND NOT EXISTS (SELECT 1 FROM bartack.blob b WHERE b.team = d.team AND b.sha256 = d.sha256)
      AND NOT EXISTS (SELECT 1 FROM bartack.schedule s WHERE s.team = d.team AND s.copy = d.sha256)
    ORDER BY d.team, d.sha256 LIMIT most FOR UPDATE SKIP LOCKED),
  few AS (SELECT o.*, sum(o.size) OVER (ORDER BY o.team, o.sha256) - o.size AS sum_before FROM old o),
  gone AS (DELETE FROM bartack.content c USING few f
    WHERE c.team = f.team AND c.sha256 = f.sha256 AND f.sum_before < 256 * 1048576::bigint RETURNING 1)
  SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone) INTO found_n, dropped;
  RETURN found_n = most OR dropped < found_n;
END $$;

-- Runs that are gone, but for their journals.
CREATE TABLE bartack.removed (run bigint PRIMARY KEY);

-- Deletes a run that nothing owns; true if it is gone. How long its journal is makes no difference: "drop_journal" deletes that.
CREATE OR REPLACE FUNCTION bartack.remove(its_run bigint) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner WHERE run = its_run FOR UPDATE;
  IF EXISTS (SELECT 1 FROM bartack.owner WHERE run = its_run AND state = 'owned') THEN RETURN false; END IF;
  INSERT INTO bartack.removed SELECT no FROM bartack.run WHERE no = its_run;
  DELETE FROM bartack.run WHERE no = its_run;
  RETURN true;
END $$;

-- Deletes the first commits of one journal whose run is gone: up to 5,000, of 64 MiB together. Returns whether there may be more.
CREATE FUNCTION bartack.drop_journal() RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE its_run bigint; n int;
BEGIN
  SELECT r.run INTO its_run FROM bartack.removed r ORDER BY r.run LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  WITH few AS (SELECT x.seq, sum(x.size) OVER (ORDER BY x.seq) - x.size AS sum_before FROM
    (SELECT c.seq, octet_length(c.lines)::bigint AS size FROM bartack.journal c WHERE c.run = its_run ORDER BY c.seq LIMIT 5000) x)
  DELETE FROM bartack.journal j USING few f WHERE j.run = its_run AND j.seq = f.seq AND f.sum_before < 64 * 1048576::bigint;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n = 0 THEN DELETE FROM bartack.removed WHERE run = its_run; END IF;
  RETURN true;
END $$;

-- Partitions of journals whose runs are all deleted. No number is used twice, so nothing is ever written there again.
CREATE FUNCTION bartack.drop_partitions() RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE p record; part bigint; newest bigint; n int := 0;
BEGIN
  SELECT coalesce(max(no), 0) INTO newest FROM bartack.run;
  FOR p IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = 'bartack.journal'::regclass ORDER BY c.relname LOOP
    part := substring(p.relname FROM 'journal_([0-9]+)$')::bigint;
    CONTINUE WHEN part IS NULL OR part >= newest / 100000
      OR EXISTS (SELECT 1 FROM bartack.run r WHERE r.no >= part * 100000 AND r.no < (part + 1) * 100000);
    EXECUTE format('DROP TABLE bartack.%I', p.relname);
    n := n + 1;
  END LOOP;
  RETURN n;
END $$;

-- Does a piece of work, and returns what kept it from being done; empty if nothing did. NULL: it is not due, or another node does it.
-- What fails is tried again at its next time.
CREATE FUNCTION bartack.do_chore(me int, its_name text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE c bartack.chore; n int := 0; has_more bool := false; fault text := '';
BEGIN
  SELECT d.* INTO c FROM bartack.chore d WHERE d.name = its_name AND d.due <= clock_timestamp()
    AND EXISTS (SELECT 1 FROM bartack.node x WHERE x.id = me AND x.state = 'live') FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  BEGIN
    CASE c.name
      WHEN 'partition' THEN PERFORM bartack.make_partition((SELECT coalesce(max(no), 0) FROM bartack.run) + 100000);
      WHEN 'content' THEN has_more := bartack.drop_content(100);
      WHEN 'removed' THEN has_more := bartack.drop_journal();
      WHEN 'requests' THEN
        IF to_regclass('bartack.request') IS NOT NULL THEN
          EXECUTE $q$UPDATE bartack.request SET state = 'late', value = NULL, settled = clock_timestamp() WHERE no IN
            (SELECT no FROM bartack.request WHERE state = 'open' AND late_at <= clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED)$q$;
          GET DIAGNOSTICS n = ROW_COUNT;
        END IF;
      WHEN 'nodes' THEN
        DELETE FROM bartack.node WHERE id IN (SELECT x.id FROM bartack.node x WHERE x.state IN ('left', 'dead')
          AND x.until < clock_timestamp() - interval '7 days' AND NOT EXISTS (SELECT 1 FROM bartack.owner o WHERE o.node = x.id)
          LIMIT 100 FOR UPDATE SKIP LOCKED);
        GET DIAGNOSTICS n = ROW_COUNT;
      WHEN 'journals' THEN PERFORM bartack.drop_partitions();
      ELSE NULL;  -- of a newer version
    END CASE;
  EXCEPTION WHEN OTHERS THEN  -- but for a statement that takes too long, which whoever has sent it notes
    fault := SQLERRM;
    has_more := false;
    n := 0;
  END;
  UPDATE bartack.chore SET due = clock_timestamp() + CASE WHEN has_more OR n = 100 THEN interval '1 s' ELSE every END,
    done = CASE WHEN fault = '' THEN clock_timestamp() ELSE done END, problem = fault WHERE name = c.name;
  RETURN fault;
END $$;

-- A piece of work was not done, or it is not known whether it was: it is tried again at its next time, so that others have their turn.
CREATE FUNCTION bartack.note_chore(its_name text, fault text) RETURNS void LANGUAGE sql SET search_path = pg_catalog AS $$
  UPDATE bartack.chore SET due = clock_timestamp() + every, problem = fault WHERE name = its_name AND due <= clock_timestamp() $$;

-- After the database was restored from a backup: what nodes did since that backup is not in it. So no node of before is alive, every
-- fence is out of their reach, and what nodes would continue by themselves is held; returns how many runs that are.
CREATE FUNCTION bartack.restored() RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE n bigint;
BEGIN
  PERFORM 1 FROM bartack.owner ORDER BY run FOR UPDATE;
  UPDATE bartack.node SET state = 'dead' WHERE state IN ('live', 'draining');
  SELECT count(*) INTO n FROM bartack.owner WHERE pool IS NOT NULL AND state NOT IN ('over', 'held');
  UPDATE bartack.owner SET fence = fence + 1000, node = NULL, alive = false, strikes = 0, due = NULL, refused = '{}',
    reason = CASE WHEN state IN ('over', 'held') OR pool IS NULL THEN reason ELSE 'the database was restored from a backup' END,
    state = CASE WHEN state IN ('over', 'held') THEN state WHEN pool IS NULL THEN 'resting' ELSE 'held' END;
  RETURN n;
END $$;

-- Until when an agent takes no calls of an account, as the nodes of a pool have found out. "agent" stands for both, without credentials.
CREATE TABLE bartack.pause (
  pool text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  until timestamptz NOT NULL,
  reason text NOT NULL DEFAULT '',
  PRIMARY KEY (pool, agent));

-- A node reports the pauses that it knows, and gets all of its pools. A provider that names a later time than a week is wrong.
CREATE FUNCTION bartack.share_pauses(me int, agents text[], untils bigint[], reasons text[])
RETURNS TABLE (agent text, until_us bigint, reason text) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine text[]; c timestamptz := clock_timestamp();
BEGIN
  SELECT n.pools INTO mine FROM bartack.node n WHERE n.id = me AND n.role = session_user AND n.state IN ('live', 'draining');
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO bartack.pause AS p (pool, agent, until, reason)
    SELECT DISTINCT ON (of_pool, a.agent) of_pool, a.agent, to_timestamp(a.us / 1e6), left(a.reason, 200)
    FROM unnest(mine) of_pool, unnest(agents, untils, reasons) AS a(agent, us, reason)
    WHERE length(a.agent) <= 100 AND to_timestamp(a.us / 1e6) BETWEEN c AND c + interval '8 days'
    ORDER BY of_pool, a.agent, a.us DESC LIMIT 1000
    ON CONFLICT (pool, agent) DO UPDATE SET until = excluded.until, reason = excluded.reason WHERE p.until < excluded.until;
  DELETE FROM bartack.pause p WHERE (p.pool, p.agent) IN (SELECT o.pool, o.agent FROM bartack.pause o WHERE o.until < c
    ORDER BY o.pool, o.agent LIMIT 100 FOR UPDATE SKIP LOCKED);
  RETURN QUERY SELECT DISTINCT ON (p.agent) p.agent, (extract(epoch FROM p.until) * 1e6)::bigint, p.reason FROM bartack.pause p
    WHERE p.pool = ANY (mine) AND p.until > c ORDER BY p.agent, p.until DESC LIMIT 1000;
END $$;
