-- When a node may be declared dead. The simulation of nodes (tests/crash/fleet_simulation) has found what is closed here.
--
--   bury_late    declares late nodes dead, if the node that asks is steady
--   beat_fleet   as before, with it
--   join_node    as before; a request to join that arrives late frees nothing of a later life of the seat

-- Empty after a crash of the server, and where a standby takes over: beats may be lost then, and leases look shorter than they are.
CREATE UNLOGGED TABLE bartack.awake (since timestamptz NOT NULL);

-- Only a steady node buries: one whose own beats came without a gap for a whole lease, in which the server did not crash. A late node
-- is left alone for a part of its lease more: so much the clock of the server may step ahead without a gap between two beats.
CREATE FUNCTION bartack.bury_late(me int, c timestamptz) RETURNS int[] LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE mine bartack.node; awake timestamptz; dead int[];
BEGIN
  SELECT a.since INTO awake FROM bartack.awake a LIMIT 1;
  IF NOT FOUND THEN
    INSERT INTO bartack.awake VALUES (c);
    RETURN NULL;
  END IF;
  SELECT * INTO mine FROM bartack.node n WHERE n.id = me;
  IF greatest(mine.steady, awake) >= c - mine.lease THEN RETURN NULL; END IF;
  -- Nodes of one run have no slots: their process may be a person's, and gets more time.
  SELECT array_agg(n.id ORDER BY n.id) INTO dead FROM bartack.node n WHERE n.state IN ('live', 'draining')
    AND n.until + CASE WHEN n.slots = 0 THEN interval '30 s' ELSE n.lease * 0.15 END < c;
  IF dead IS NULL THEN RETURN NULL; END IF;
  -- Owners are locked before nodes, and a node that has renewed its lease meanwhile is left alone.
  PERFORM 1 FROM bartack.owner o WHERE o.node = ANY (dead) ORDER BY o.run FOR UPDATE;
  SELECT array_agg(d.id ORDER BY d.id) INTO dead FROM (SELECT n.id FROM bartack.node n
    WHERE n.id = ANY (dead) AND n.state IN ('live', 'draining')
      AND n.until + CASE WHEN n.slots = 0 THEN interval '30 s' ELSE n.lease * 0.15 END < c
    ORDER BY n.id FOR UPDATE SKIP LOCKED) d;
  IF dead IS NOT NULL THEN PERFORM bartack.bury(dead, 'its node died'); END IF;
  RETURN dead;
END $$;

-- Renews the lease of a node, and does what is due for all. After the database was away no node is steady, so all of them renew first.
CREATE OR REPLACE FUNCTION bartack.beat_fleet(me int)
RETURNS TABLE (state text, now_us bigint, buried int[], queued bool, asked bigint[]) LANGUAGE plpgsql SET search_path = pg_catalog AS $$
#variable_conflict use_column
DECLARE mine bartack.node; c timestamptz := clock_timestamp(); dead int[];
BEGIN
  SET LOCAL synchronous_commit = off;
  UPDATE bartack.node n SET until = c + n.lease,
    steady = CASE WHEN n.until - n.lease < c - n.lease * 0.35 THEN c ELSE n.steady END
    WHERE n.id = me AND n.state IN ('live', 'draining') RETURNING n.* INTO mine;
  IF NOT FOUND THEN
    RETURN QUERY SELECT n.state, (extract(epoch FROM c) * 1e6)::bigint, NULL::int[], false, NULL::bigint[]
      FROM bartack.node n WHERE n.id = me;
    RETURN;
  END IF;
  dead := bartack.bury_late(me, c);
  UPDATE bartack.owner o SET state = 'queued', due = NULL WHERE o.run IN (SELECT r.run FROM bartack.owner r
    WHERE r.state = 'resting' AND r.due <= c ORDER BY r.due LIMIT 100 FOR UPDATE SKIP LOCKED);
  RETURN QUERY SELECT mine.state, (extract(epoch FROM c) * 1e6)::bigint, dead,
    EXISTS (SELECT 1 FROM bartack.owner o WHERE o.state = 'queued' AND o.pool = ANY (mine.pools)),
    ARRAY(SELECT DISTINCT q.run FROM bartack.request q JOIN bartack.owner o ON o.run = q.run
      WHERE o.node = me AND q.state = 'open' AND (q.late_at IS NULL OR q.late_at > c));
END $$;

-- A new node. Earlier ones of the same seat, role and start of the host are gone: the caller has the lock of the seat. The number
-- after the slash in "boot" grows with each life. A request that was given up and arrives after its successor has a lower one, or
-- the same: it must not bury the node that its successor has become.
CREATE OR REPLACE FUNCTION bartack.join_node(its_name text, its_seat uuid, its_boot text, its_version text, its_slots int, lease_s float8)
RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE made int; gone int[]; life text := split_part(its_boot, '/', 2);
BEGIN
  SELECT array_agg(n.id ORDER BY n.id) INTO gone FROM bartack.node n
    WHERE n.seat = its_seat AND split_part(n.boot, '/', 1) = split_part(its_boot, '/', 1) AND n.state IN ('live', 'draining')
      AND n.role = session_user AND (life = '' OR coalesce(nullif(split_part(n.boot, '/', 2), ''), '0')::numeric < life::numeric);
  IF gone IS NOT NULL THEN PERFORM bartack.bury(gone, 'its process died'); END IF;
  INSERT INTO bartack.node (name, seat, boot, version, slots, lease, until)
    VALUES (its_name, its_seat, its_boot, its_version, its_slots, make_interval(secs => lease_s),
      clock_timestamp() + make_interval(secs => lease_s))
    RETURNING id INTO made;
  RETURN made;
END $$;
