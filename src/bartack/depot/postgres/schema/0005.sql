-- Who may do what. The caller is the role that has logged in (session_user), whoever owns the function that it calls.
--
--   my_teams       the teams of the caller
--   guard_*        triggers: no function, whatever it is for, changes what the caller may not change
--   settle, withdraw   as before, for the node and the process that they are about
--   append         checks that, too, and is as fast as before
--   add_schedule, remove_schedule, take_schedule, note_schedule   likewise
--   keep_value, keep_value_part   the workspace that a schedule keeps
--   keep_content, keep_part, keep_program, accept_loss, adopt   what owners wrote into tables themselves before
--
-- A team is a role of the same name, and its members are those of the role. The team 'default' belongs to all callers. Members of the role
-- that owns the tables have all teams, so that a database of one user needs no roles.

CREATE FUNCTION bartack.administers() RETURNS bool LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
  SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = 'bartack.team'::regclass $$;

CREATE FUNCTION bartack.my_teams() RETURNS text[] LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
  SELECT coalesce(array_agg(t.name), '{}') FROM bartack.team t WHERE t.name = 'default' OR bartack.administers()
    OR EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = t.name AND pg_has_role(session_user, r.oid, 'MEMBER')) $$;

CREATE FUNCTION bartack.refuse(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE insufficient_privilege USING MESSAGE = format('%s may not %s', quote_ident(session_user), what);
END $$;

-- Runs are made, changed and removed by members of their team. What the owner of a run says of it, only its node changes.
CREATE FUNCTION bartack.guard_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE its_team text := CASE WHEN TG_OP = 'INSERT' THEN NEW.team ELSE OLD.team END;
BEGIN
  IF bartack.administers() THEN RETURN coalesce(NEW, OLD); END IF;
  IF its_team <> ALL (bartack.my_teams()) OR NEW.team <> its_team THEN
    PERFORM bartack.refuse('change runs of the team ' || quote_ident(its_team));
  END IF;
  IF TG_OP = 'INSERT' THEN
    -- A list with a name that is none could not be read by the others.
    IF NEW.id !~ '^run-[0-9]{4}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])-([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]-[0-9a-f]{8}$' THEN
      PERFORM bartack.refuse('give a run this id');
    END IF;
    NEW.submitted_by := session_user;
  ELSIF EXISTS (SELECT 1 FROM bartack.owner o JOIN bartack.node n ON n.id = o.node
      WHERE o.run = OLD.no AND o.state = 'owned' AND n.role <> session_user) THEN
    PERFORM bartack.refuse('change a run that a node of another role owns');
  END IF;
  RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON bartack.run FOR EACH ROW EXECUTE FUNCTION bartack.guard_run();

-- A node is of the role that has joined. Others can only declare it dead when its lease is over, and drain it if they are members
-- of its role.
CREATE FUNCTION bartack.guard_node() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    NEW.role := session_user;
  ELSIF NEW.role <> OLD.role THEN
    PERFORM bartack.refuse('give a node to another role');
  ELSIF OLD.role = session_user OR bartack.administers() THEN
    NULL;
  ELSIF NEW.state = 'dead' AND OLD.state IN ('live', 'draining') AND OLD.until < clock_timestamp() THEN
    NULL;
  ELSIF NEW.state = 'draining' AND (OLD.state = 'live' OR (OLD.state = 'draining' AND NEW.hurries AND NOT OLD.hurries))
      AND NEW.until = OLD.until
      AND EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = OLD.role AND pg_has_role(session_user, r.oid, 'MEMBER')) THEN
    NULL;
  ELSE
    PERFORM bartack.refuse('act as a node of another role');
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard BEFORE INSERT OR UPDATE ON bartack.node FOR EACH ROW EXECUTE FUNCTION bartack.guard_node();

-- A run is taken by a node of the caller, for a team of the caller, and given back by the caller or after the death of the node.
CREATE FUNCTION bartack.guard_owner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF bartack.administers() THEN RETURN NEW; END IF;
  IF NEW.node IS NOT NULL AND NEW.node IS DISTINCT FROM OLD.node
      AND NOT EXISTS (SELECT 1 FROM bartack.node n WHERE n.id = NEW.node AND n.role = session_user) THEN
    PERFORM bartack.refuse('own runs for a node of another role');
  END IF;
  IF OLD.state = 'owned' AND (NEW.state, NEW.node, NEW.fence, NEW.alive, NEW.strikes)
      IS DISTINCT FROM (OLD.state, OLD.node, OLD.fence, OLD.alive, OLD.strikes) THEN
    IF NOT EXISTS (SELECT 1 FROM bartack.node n WHERE n.id = OLD.node AND (n.role = session_user OR n.state IN ('dead', 'left'))) THEN
      PERFORM bartack.refuse('take a run from a node of another role');
    END IF;
  ELSIF OLD.state = 'resting' AND NEW.state = 'queued' AND OLD.due <= clock_timestamp() THEN
    NULL;  -- its time has come, and any node may see that
  ELSIF NOT EXISTS (SELECT 1 FROM bartack.run r WHERE r.no = OLD.run AND r.team = ANY (bartack.my_teams())) THEN
    PERFORM bartack.refuse('take or queue runs of a team of others');
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard BEFORE UPDATE ON bartack.owner FOR EACH ROW EXECUTE FUNCTION bartack.guard_owner();

-- For tables with a team, and for those with a run: rows of other teams are neither added nor changed.
CREATE FUNCTION bartack.guard_team() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF bartack.administers() THEN RETURN coalesce(NEW, OLD); END IF;
  IF TG_OP <> 'INSERT' AND OLD.team <> ALL (bartack.my_teams()) THEN RETURN NULL; END IF;
  IF NEW.team <> ALL (bartack.my_teams()) THEN
    PERFORM bartack.refuse('use the team ' || quote_ident(NEW.team));
  END IF;
  RETURN coalesce(NEW, OLD);
END $$;

CREATE FUNCTION bartack.guard_of_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE its_run bigint := CASE WHEN TG_OP = 'DELETE' THEN OLD.run ELSE NEW.run END;
BEGIN
  IF bartack.administers()
      OR NOT EXISTS (SELECT 1 FROM bartack.run r WHERE r.no = its_run AND r.team <> ALL (bartack.my_teams())) THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  IF TG_OP = 'INSERT' THEN PERFORM bartack.refuse('ask runs of a team of others'); END IF;
  -- What is late is late, and what is old is old, whichever node sees it.
  IF TG_OP = 'UPDATE' AND to_jsonb(NEW) ->> 'state' = 'late' AND (to_jsonb(OLD) ->> 'late_at')::timestamptz <= clock_timestamp() THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'DELETE' AND (to_jsonb(OLD) ->> 'settled')::timestamptz < clock_timestamp() - interval '1 day' THEN RETURN OLD; END IF;
  RETURN NULL;
END $$;

-- As before, and the node is the caller's. A caller chooses where names are looked up, and a SET clause against that would cost
-- each append: so every name and operator says its schema. The role is looked at after the fence, for the runs of the batch only.
CREATE OR REPLACE FUNCTION bartack.append(runs bigint[], fences int[], seqs bigint[], lasts bigint[], crcs bigint[], texts bytea[])
RETURNS TABLE (run bigint, outcome text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH fenced AS MATERIALIZED (
    SELECT a.*, o.node FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3), pg_catalog.unnest($4),
      pg_catalog.unnest($5), pg_catalog.unnest($6)) AS a(run, fence, seq, last, crc, lines)
    JOIN bartack.owner o ON o.run OPERATOR(pg_catalog.=) a.run AND o.fence OPERATOR(pg_catalog.=) a.fence
      AND o.state OPERATOR(pg_catalog.=) 'owned' ORDER BY o.run FOR SHARE OF o),
  held AS MATERIALIZED (
    SELECT f.* FROM fenced f
    WHERE (SELECT n.role OPERATOR(pg_catalog.=) session_user FROM bartack.node n WHERE n.id OPERATOR(pg_catalog.=) f.node)),
  written AS (
    INSERT INTO bartack.journal AS j (run, seq, last, fence, crc, lines)
    SELECT h.run, h.seq, h.last, h.fence, h.crc, h.lines FROM held h
    WHERE h.seq OPERATOR(pg_catalog.=) (1 OPERATOR(pg_catalog.+) coalesce((SELECT p.last FROM bartack.journal p
      WHERE p.run OPERATOR(pg_catalog.=) h.run ORDER BY p.seq DESC LIMIT 1), 0))
    ON CONFLICT DO NOTHING RETURNING j.run)
  SELECT a.run, CASE WHEN w.run IS NOT NULL THEN 'written' WHEN h.run IS NULL THEN 'lost' ELSE 'look' END
  FROM pg_catalog.unnest($1) AS a(run) LEFT JOIN held h ON h.run OPERATOR(pg_catalog.=) a.run
    LEFT JOIN written w ON w.run OPERATOR(pg_catalog.=) a.run;
END $$;

-- As before, of the runs of the caller's teams.
CREATE OR REPLACE FUNCTION bartack.look(runs bigint[], seqs bigint[])
RETURNS TABLE (run bigint, owner_fence int, fence int, last bigint, crc bigint, ends bigint) LANGUAGE sql STABLE
SET search_path = pg_catalog AS $$
  SELECT a.run, CASE WHEN o.state = 'owned' THEN o.fence ELSE -1 END, j.fence, j.last, j.crc,
    coalesce((SELECT p.last FROM bartack.journal p WHERE p.run = r.no ORDER BY p.seq DESC LIMIT 1), 0)
  FROM unnest($1, $2) AS a(run, seq) LEFT JOIN bartack.run r ON r.no = a.run AND r.team = ANY (bartack.my_teams())
  LEFT JOIN bartack.owner o ON o.run = r.no LEFT JOIN bartack.journal j ON j.run = r.no AND j.seq = a.seq $$;

-- As before, but the earlier lives of a seat are only those of the caller: who knows the seat of another role ends nothing.
CREATE OR REPLACE FUNCTION bartack.join_node(its_name text, its_seat uuid, its_boot text, its_version text, its_slots int,
  lease_s float8) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int; gone int[];
BEGIN
  SELECT array_agg(id ORDER BY id) INTO gone FROM bartack.node
    WHERE seat = its_seat AND boot = its_boot AND state IN ('live', 'draining') AND role = session_user;
  IF gone IS NOT NULL THEN PERFORM bartack.bury(gone, 'its process died'); END IF;
  INSERT INTO bartack.node (name, seat, boot, version, slots, lease, until)
    VALUES (its_name, its_seat, its_boot, its_version, its_slots, make_interval(secs => lease_s),
      clock_timestamp() + make_interval(secs => lease_s))
    RETURNING id INTO made;
  RETURN made;
END $$;

-- As before, from the teams of the caller, and no more than the node has slots.
CREATE OR REPLACE FUNCTION bartack.claim(me int, most int)
RETURNS TABLE (run bigint, id text, team text, fence int, strikes int, seen_us bigint) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE n bartack.node; c record; got int := 0; is_limited bool; teams text[] := bartack.my_teams();
BEGIN
  LOCK TABLE bartack.owner IN ROW EXCLUSIVE MODE;
  -- No row of "owner" is waited for here, so the node may be locked first.
  SELECT * INTO n FROM bartack.node WHERE id = me AND state = 'live' FOR SHARE;
  IF NOT FOUND OR NOT EXISTS (SELECT 1 FROM bartack.owner o WHERE o.state = 'queued' AND o.pool = ANY (n.pools)) THEN RETURN; END IF;
  -- A claim whose answer was lost is made again; both together take no more than the node has slots.
  most := least(most, n.slots - (SELECT count(*)::int FROM bartack.owner o WHERE o.node = me));
  IF most <= 0 THEN RETURN; END IF;
  PERFORM 1 FROM bartack.team t WHERE t.max_running IS NOT NULL ORDER BY t.name FOR NO KEY UPDATE;
  is_limited := FOUND;
  FOR c IN SELECT o.run, t.name, t.max_running FROM bartack.owner o JOIN bartack.run r ON r.no = o.run JOIN bartack.team t ON t.name = r.team
      WHERE o.state = 'queued' AND o.pool = ANY (n.pools) AND o.needs <@ n.labels AND o.reads <= n.reads AND me <> ALL (o.refused)
        AND (o.due IS NULL OR o.due <= clock_timestamp()) AND (t.max_running IS NULL OR t.running < t.max_running)
        AND t.name = ANY (teams)
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

-- The team of a run, if the caller may keep values for it: it owns the run under this fence, or nothing owns it.
CREATE FUNCTION bartack.team_to_keep_for(its_run bigint, its_fence int) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog AS $$
  SELECT r.team FROM bartack.owner o JOIN bartack.run r ON r.no = o.run LEFT JOIN bartack.node n ON n.id = o.node
  WHERE o.run = $1 AND o.fence = $2 AND (o.state <> 'owned' OR n.role = session_user) AND r.team = ANY (bartack.my_teams()) $$;

-- Begins to keep a large value of a run: 'kept' (it is there), 'send' (its pieces have to follow in this transaction), or 'lost'.
-- The owner is not locked: a transaction of several messages that a stopped process leaves open must not keep others from burying it.
CREATE FUNCTION bartack.keep_content(its_run bigint, its_fence int, digest bytea, its_size bigint) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE its_team text := bartack.team_to_keep_for(its_run, its_fence); is_new bool;
BEGIN
  IF its_team IS NULL THEN RETURN 'lost'; END IF;
  INSERT INTO bartack.content AS c (team, sha256, size) VALUES (its_team, digest, its_size)
    ON CONFLICT (team, sha256) DO UPDATE SET touched = clock_timestamp() RETURNING c.xmax = 0 INTO is_new;
  INSERT INTO bartack.blob (run, team, sha256) VALUES (its_run, its_team, digest) ON CONFLICT DO NOTHING;
  RETURN CASE WHEN is_new THEN 'send' ELSE 'kept' END;
END $$;

-- One piece of such a value. A value that is complete takes no more pieces, and keeps those that it has.
CREATE FUNCTION bartack.keep_part(its_run bigint, its_fence int, digest bytea, its_no int, piece bytea) RETURNS bool LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  INSERT INTO bartack.part (team, sha256, no, bytes)
    SELECT c.team, c.sha256, its_no, piece FROM bartack.content c
    WHERE c.team = bartack.team_to_keep_for(its_run, its_fence) AND c.sha256 = digest
      AND its_no >= 0 AND its_no * 1048576::bigint < c.size AND octet_length(piece) <= 1048576;
  RETURN FOUND;
END $$;

-- Continues a run with another program from now on, which is kept for it already.
CREATE FUNCTION bartack.keep_program(its_run bigint, its_fence int, digest bytea, its_size bigint) RETURNS bool LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner o WHERE o.run = its_run AND o.fence = its_fence FOR SHARE;
  IF NOT FOUND OR bartack.team_to_keep_for(its_run, its_fence) IS NULL
      OR NOT EXISTS (SELECT 1 FROM bartack.blob b WHERE b.run = its_run AND b.sha256 = digest) THEN
    RETURN false;
  END IF;
  UPDATE bartack.run SET program = digest, program_size = its_size WHERE no = its_run AND program IS DISTINCT FROM digest;
  RETURN true;
END $$;

-- Its owner accepts that the journal ends before an entry that was acknowledged.
CREATE FUNCTION bartack.accept_loss(its_run bigint, its_fence int, its_last bigint) RETURNS bool LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  PERFORM 1 FROM bartack.owner o WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' FOR SHARE;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE bartack.run SET at_least = its_last WHERE no = its_run;
  RETURN true;
END $$;

-- A run that was kept in files goes on here: under the fence that it had there, with its summary, and with the lines that are missing
-- if an earlier attempt was interrupted. Returns its fence, or NULL if it is not the run that the caller has submitted and looked at.
CREATE FUNCTION bartack.adopt(its_run bigint, seen_fence int, its_fence int, seen_last bigint, its_last bigint, its_crc bigint,
  rest bytea, its_summary bytea) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int := greatest(seen_fence, its_fence);
BEGIN
  PERFORM 1 FROM bartack.owner o JOIN bartack.run r ON r.no = o.run
    WHERE o.run = its_run AND o.fence = seen_fence AND o.state = 'resting' AND r.submitted_by = session_user FOR UPDATE OF o;
  IF NOT FOUND OR seen_last <> (SELECT coalesce(max(j.last), 0) FROM bartack.journal j WHERE j.run = its_run) THEN
    RETURN NULL;
  END IF;
  UPDATE bartack.owner SET fence = made WHERE run = its_run;
  UPDATE bartack.run SET summary = coalesce(its_summary, summary) WHERE no = its_run;
  IF rest IS NOT NULL THEN
    INSERT INTO bartack.journal (run, seq, last, fence, crc, lines)
      VALUES (its_run, seen_last + 1, its_last, seen_fence, its_crc, rest);
  END IF;
  RETURN made;
END $$;

-- Begins to keep a large value for a schedule: 'kept' (it is there), or 'send' (its pieces have to follow in this transaction).
CREATE FUNCTION bartack.keep_value(its_team text, digest bytea, its_size bigint) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE is_new bool;
BEGIN
  IF its_team <> ALL (bartack.my_teams()) THEN PERFORM bartack.refuse('use the team ' || quote_ident(its_team)); END IF;
  INSERT INTO bartack.content AS c (team, sha256, size) VALUES (its_team, digest, its_size)
    ON CONFLICT (team, sha256) DO UPDATE SET touched = clock_timestamp() RETURNING c.xmax = 0 INTO is_new;
  RETURN CASE WHEN is_new THEN 'send' ELSE 'kept' END;
END $$;

-- One piece of such a value; see "keep_part".
CREATE FUNCTION bartack.keep_value_part(its_team text, digest bytea, its_no int, piece bytea) RETURNS bool LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF its_team <> ALL (bartack.my_teams()) THEN PERFORM bartack.refuse('use the team ' || quote_ident(its_team)); END IF;
  INSERT INTO bartack.part (team, sha256, no, bytes) SELECT c.team, c.sha256, its_no, piece FROM bartack.content c
    WHERE c.team = its_team AND c.sha256 = digest
      AND its_no >= 0 AND its_no * 1048576::bigint < c.size AND octet_length(piece) <= 1048576;
  RETURN FOUND;
END $$;

-- Adds a schedule; false if there is one of this name.
CREATE FUNCTION bartack.add_schedule(its_name text, its_team text, its_cron text, its_zone text, its_words text[], its_pool text,
  its_priority int, its_needs text[], may_overlap bool, its_job bytea, its_program bytea, its_copy bytea, its_next timestamptz)
RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  INSERT INTO bartack.schedule (name, team, cron, zone, words, pool, priority, needs, overlap, job, program, copy, next) VALUES (its_name,
    its_team, its_cron, its_zone, its_words, its_pool, its_priority, its_needs, may_overlap, its_job, its_program, its_copy, its_next)
    ON CONFLICT DO NOTHING;
  RETURN FOUND;
END $$;

CREATE FUNCTION bartack.remove_schedule(its_name text) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  DELETE FROM bartack.schedule WHERE name = its_name;
  RETURN FOUND;
END $$;

-- A schedule of the caller's teams that is due and that no other node has; no other node gets it until this transaction ends.
CREATE FUNCTION bartack.take_schedule(but text[]) RETURNS SETOF bartack.schedule LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RETURN QUERY SELECT s.* FROM bartack.schedule s WHERE s.next <= clock_timestamp() AND s.team = ANY (bartack.my_teams())
    AND s.name <> ALL (but) ORDER BY s.next LIMIT 1 FOR UPDATE SKIP LOCKED;
END $$;

-- What became of a time of a schedule, and when its next one is.
CREATE FUNCTION bartack.note_schedule(its_name text, its_next timestamptz, its_problem text, its_run text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog AS $$
  UPDATE bartack.schedule SET next = its_next, problem = its_problem,
    last_run = CASE WHEN its_run = '' THEN last_run ELSE its_run END,
    last_at = CASE WHEN its_run = '' THEN last_at ELSE clock_timestamp() END WHERE name = its_name $$;

-- As before, and the node is the caller's.
CREATE OR REPLACE FUNCTION bartack.settle(its_id uuid, its_run bigint, its_fence int, to_state text, its_answer bytea)
RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM bartack.owner o JOIN bartack.node n ON n.id = o.node AND n.role = session_user
    WHERE o.run = its_run AND o.fence = its_fence AND o.state = 'owned' FOR SHARE OF o;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE bartack.request q SET state = to_state, answer = its_answer, value = NULL, settled = clock_timestamp()
    WHERE q.id = its_id AND q.run = its_run AND q.state = 'open';
  IF NOT FOUND THEN RETURN false; END IF;
  DELETE FROM bartack.request q WHERE q.no IN (SELECT r.no FROM bartack.request r
    WHERE r.state <> 'open' AND r.settled < clock_timestamp() - interval '1 day' ORDER BY r.settled LIMIT 10 FOR UPDATE SKIP LOCKED);
  PERFORM pg_notify('bartack_run_' || its_run, '');
  RETURN true;
END $$;

-- As before, and the caller has asked.
CREATE OR REPLACE FUNCTION bartack.withdraw(its_id uuid) RETURNS void LANGUAGE sql SET search_path = pg_catalog AS $$
  DELETE FROM bartack.request WHERE id = its_id AND state = 'open' AND asked_by = session_user $$;
