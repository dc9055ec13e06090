"""What runs inside the server, each in one step: no other client sees half of it. A version has 19 digits, as text."""

from __future__ import annotations

VERSION, DELETED = "onceonly.version", "onceonly.deleted"
"""The fields of our own in each hash; one that is deleted has no others."""
VOID = "void"
WITNESSED = "witnesses:"
"""What the field of the books begins with that says what the witnesses of a query's sink must have."""
ANEW = "anew"
AGAIN = "again"
_TEXTS_MAX = 4000
"""The most in one call: Lua's stack ends at 8000. It is even, as a field and its value are two."""

PUT = f"""
local version, tombstones, deleted = ARGV[1], ARGV[2], ARGV[3]
local mine, names, newer = {{}}, {{}}, {{}}
if redis.call('EXISTS', unpack(KEYS)) == 0 then
  for row = 1, #KEYS do
    mine[row] = row
  end
else
  for row, key in ipairs(KEYS) do
    local held = redis.call('HGET', key, '{VERSION}')
    if not held or held <= version then
      mine[#mine + 1], names[#names + 1] = row, key
    else
      newer = {{key, held}}
    end
  end
  if #names > 0 then
    redis.call('HSET', names[1], '{VERSION}', version)
    redis.call('DEL', unpack(names))
  end
end
local columns, form = {{}}, '<' .. string.rep('i4', #KEYS + 1)
for at = 4, #ARGV, 4 do
  columns[#columns + 1] = {{ARGV[at], ARGV[at + 1], {{struct.unpack(form, ARGV[at + 2])}}, ARGV[at + 3]}}
end
local byte, sub, call = string.byte, string.sub, {{'HSET', '', '{VERSION}', version}}
local function set(count)
  local added = redis.call(unpack(call, 1, math.min(count, {_TEXTS_MAX})))
  for first = {_TEXTS_MAX} + 1, count, {_TEXTS_MAX} do
    added = added + redis.call('HSET', call[2], unpack(call, first, math.min(first + {_TEXTS_MAX} - 1, count)))
  end
  return added
end
for _, row in ipairs(mine) do
  local key, count = KEYS[row], 4
  call[2] = key
  if byte(deleted, row) == 1 then
    call[5], call[6], count = '{DELETED}', '1', 6
  else
    for _, column in ipairs(columns) do
      if byte(column[2], row) ~= 1 then
        local ends = column[3]
        call[count + 1], call[count + 2] = column[1], sub(column[4], ends[row] + 1, ends[row + 1])
        count = count + 2
      end
    end
  end
  if 2 * set(count) < count - 2 then
    redis.call('DEL', key)
    set(count)
  end
  if byte(deleted, row) == 1 then
    redis.call('PEXPIRE', key, tombstones)
  end
end
return newer
"""
"""Keys: rows. Arguments: the version, how long a tombstone stays (ms), a byte for each key, 1 to delete it; then of
each column its name, a byte for each key, 1 where it is null, the ends of its texts, 0 before them (32 bits each), and
these, one behind the other. Where no byte is 1 there may be none. Gives one that has a greater version, and that.

It asks once whether any key is there, as most often none is. It begins with what a server without memory refuses: once
a script has written, all else is let through. A key that is named twice has fields when it comes again, and loses them.
"""

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

TRY = """
local without = redis.pcall('HINCRBY', KEYS[1], '1', 'x')
if string.find(without['err'], 'OOM', 1, true) then
  return without
end
redis.call('DEL', KEYS[1])
local wrong
for _, word in ipairs({
  {'EXISTS'}, {'TYPE'}, {'PEXPIRE', 1}, {'HGET', '1'}, {'HGETALL'}, {'HDEL', '1'}, {'HSET', '1', '1'},
  {'HSETNX', '1', '1'}, {'HINCRBY', '1', 1}
}) do
  local found = redis.pcall(word[1], KEYS[1], unpack(word, 2))
  wrong = wrong or type(found) == 'table' and found['err'] and found or nil
end
redis.call('DEL', KEYS[1])
return wrong or {}
"""
"""Key: one that nobody has. Does what the other scripts do, takes it back, and gives the first refusal: of a right that
is lacking they would hear when an epoch is decided already. It begins with what a server without memory refuses, and
what changes nothing, as no number is added: once it has written, all else is let through."""

ALLOWED = """
for _, word in ipairs({
  {'EXISTS'}, {'TYPE'}, {'PEXPIRE', 1}, {'HGET', '1'}, {'HGETALL'}, {'HDEL', '1'}, {'HSET', '1', '1', '1'},
  {'HINCRBY', '1', 'x'}, {'DEL'}
}) do
  local found = redis.pcall(word[1], KEYS[1], unpack(word, 2))
  local said = type(found) == 'table' and found['err'] or ''
  if string.find(said, 'permission') or string.find(said, "can't run this") or string.find(said, 'ACL failure') then
    return found
  end
end
return {}
"""
"""Key: one that nobody has. Asks for what the other scripts do so that nothing comes of it: a server looks at rights
before it looks whether a number is one. Gives the first refusal of a right."""

_LIFE = """
local info = redis.call('INFO')
local life = (string.match(info, 'run_id:(%w+)') or '') .. (string.match(info, 'master_replid:(%w+)') or '')
life = life .. (string.match(info, 'role:(%w+)') or '')
"""

LIFE = f"{_LIFE}return life"
"""Gives a text that changes when the server is started anew, or a former replica takes over: it may lack what was
written last then."""

LOST = f"""
for _, key in ipairs(KEYS) do
  local held = redis.pcall('HGET', key, '{VERSION}')
  if type(held) ~= 'string' or held < ARGV[1] then
    return {{key, ''}}
  end
end
return {{}}
"""
"""Keys: rows. Argument: the version. Gives the first that has not this one or a greater one, and an empty text."""

SEAL = """
local held = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if held < ARGV[3] then
  return {KEYS[1], held}
end
if held < ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return {}
"""
"""Key: a witness. Arguments: whose, the version that it shall have, and the one that it must have before. Gives it, and
what it has, where that is less, and changes nothing then."""

NOTE = f"""
local books, who, epoch, since, keep = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
{_LIFE}
if ARGV[5] ~= '' and not string.find(ARGV[5], life, 1, true) then
  return {{'{ANEW}'}}
end
local witnessed = redis.call('HGET', books, '{WITNESSED}' .. who) or ''
if ARGV[7] ~= '' and witnessed ~= ARGV[7] and redis.sha1hex(witnessed) ~= ARGV[6] then
  return {{'{AGAIN}'}}
end
local newest = tonumber(redis.call('HGET', books, 'newest:' .. who) or '-1')
if newest < since then
  return {{'behind', newest}}
end
for at = 8, #ARGV do
  if redis.call('HGET', books, ARGV[at]) == '{VOID}' then
    return {{'{VOID}', ARGV[at]}}
  end
end
for at = 8, #ARGV do
  redis.call('HSET', books, ARGV[at], who)
end
if ARGV[7] ~= '' then
  redis.call('HSET', books, '{WITNESSED}' .. who, ARGV[7])
end
if epoch > newest then
  redis.call('HSET', books, 'newest:' .. who, ARGV[2])
  local all = redis.call('HGETALL', books)
  for at = 1, #all, 2 do
    local old = tonumber(string.match(all[at], '^(%d+)%.'))
    if old and old < epoch - keep and (all[at + 1] == who or all[at + 1] == '{VOID}') then
      redis.call('HDEL', books, all[at])
    end
  end
end
return {{'noted'}}
"""
"""Key: a query's books. Arguments: whose, the epoch, what they must have, how many epochs back names are kept, the
server's life when the rows were put, or those of several, the SHA-1 of what the books have of witnesses, what they get
(or an empty text), and names. Gives ``anew`` where its life is another, ``again`` where they have something else of
witnesses than either, ``behind`` and their newest, ``void`` and a name, or ``noted``."""

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
"""Key: a query's books. Arguments: names. Notes as void what is not there; gives what is."""

DRAW = """
if tonumber(redis.call('HGET', KEYS[1], 'generation') or '0') < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'generation', ARGV[1])
end
return redis.call('HINCRBY', KEYS[1], 'generation', 1)
"""
"""Key: the books of all. Argument: what a generation must be above. Gives one that nobody has."""

TAKE = """
local found = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if found <= tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return tonumber(ARGV[3])
end
return found
"""
"""Key: a query's books. Arguments: under which name, what its generation must be above, and one that was drawn. Gives
it: the one that was drawn where it is not."""
