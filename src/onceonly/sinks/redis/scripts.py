"""What runs inside the server, each in one step: no other client sees half of it. A version has 19 digits, as text."""

from __future__ import annotations

VERSION, DELETED = "onceonly.version", "onceonly.deleted"
"""The fields of our own in each hash; one that is deleted has no others."""
VOID = "void"
_TEXTS_MAX = 4000
"""So many a call: Lua's stack ends at 8000. An even number, as a field and its value are two."""

PUT = f"""
local at, has_written, newer = 3, false, {{}}
for _, key in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  local held = redis.call('HGET', key, '{VERSION}')
  if not held or held <= ARGV[1] then
    if not has_written then
      redis.call('HSET', key, '{VERSION}', ARGV[1])
      has_written = true
    end
    redis.call('DEL', key)
    if count < 0 then
      redis.call('HSET', key, '{VERSION}', ARGV[1], '{DELETED}', '1')
      redis.call('PEXPIRE', key, ARGV[2])
    else
      redis.call('HSET', key, '{VERSION}', ARGV[1])
      for first = at + 1, at + count, {_TEXTS_MAX} do
        redis.call('HSET', key, unpack(ARGV, first, math.min(first + {_TEXTS_MAX} - 1, at + count)))
      end
    end
  else
    newer = {{key, held}}
  end
  at = at + 1 + math.max(count, 0)
end
return newer
"""
"""Keys: rows. Arguments: the version, how long a tombstone stays (ms), then for each key the number of its texts, -1 to
delete it, and these. Gives one that has a greater version, and that. It begins with what a server without memory
refuses: once a script has written, all else is let through."""

EXAMINE = f"""
for _, key in ipairs(KEYS) do
  local held = redis.pcall('HGET', key, '{VERSION}')
  if type(held) == 'table' then
    return {{key, redis.call('TYPE', key)['ok']}}
  elseif held and held > ARGV[1] then
    return {{key, held}}
  end
end
return {{}}
"""
"""Keys: rows. Argument: the version. Gives the first that is no hash, and what it is, or that has a greater version,
and that."""

NOTE = f"""
local books, who, epoch, since, keep = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local newest = tonumber(redis.call('HGET', books, 'newest:' .. who) or '-1')
if newest < since then
  return {{'behind', newest}}
end
for at = 5, #ARGV do
  if redis.call('HGET', books, ARGV[at]) == '{VOID}' then
    return {{'{VOID}', ARGV[at]}}
  end
end
for at = 5, #ARGV do
  redis.call('HSET', books, ARGV[at], who)
end
if epoch > newest then
  redis.call('HSET', books, 'newest:' .. who, ARGV[2])
  local all = redis.call('HGETALL', books)
  for at = 1, #all, 2 do
    local old = tonumber(string.match(all[at], '^(%d+)%.'))
    if old and old < epoch - keep and all[at + 1] == who then
      redis.call('HDEL', books, all[at])
    end
  end
end
return {{'noted'}}
"""
"""Key: the books. Arguments: whose, the epoch, the epoch that they must have, how many epochs back names are kept, and
names. Gives ``behind`` and their newest, ``void`` and a name, or ``noted``."""

VOIDED = f"""
local found = {{}}
for _, name in ipairs(ARGV) do
  redis.call('HSETNX', KEYS[1], name, '{VOID}')
  if redis.call('HGET', KEYS[1], name) == '{VOID}' then
    found[#found + 1] = name
  end
end
return found
"""
"""Key: the books. Arguments: names. Notes as void what is not there; gives what is."""

GENERATION = """
local own, above = 'generation:' .. ARGV[1], tonumber(ARGV[2])
local found = tonumber(redis.call('HGET', KEYS[1], own) or '0')
if found <= above then
  if tonumber(redis.call('HGET', KEYS[1], 'generation') or '0') < above then
    redis.call('HSET', KEYS[1], 'generation', ARGV[2])
  end
  found = redis.call('HINCRBY', KEYS[1], 'generation', 1)
  redis.call('HSET', KEYS[1], own, found)
end
return found
"""
"""Key: the books. Arguments: whose, and what its generation must be above. Gives it, drawn where it is not."""
