-- Wireshark dissector of CI packets between apertures, heddle-ci(7).
--
--   tshark -X lua_script:heddle-ci.lua -r FILE
--
-- It takes UDP datagrams to or from port 18490, and Ethernet frames of type 0x88b5 that begin with a kind. Fields that were left out of a packed frame are shown as generated ones.

local common = require("heddle-common")

local KINDS = {[1] = "DATA", [2] = "EVENT", [3] = "READ", [4] = "RESPONSE", [5] = "CONNECT", [6] = "ACCEPT", [7] = "REJECT",
	[8] = "CLOSE", [9] = "ALIVE", [10] = "ALIVEACK", [11] = "ERROR", [12] = "STATUS", [13] = "STATUSACK"}
local REASONS = {[0] = "none", [1] = "nobody holds the port", [2] = "a rule refuses it", [3] = "busy", [4] = "size", [5] = "type",
	[6] = "declined", [7] = "closed", [8] = "gone", [9] = "silent", [10] = "sequence", [11] = "extent", [12] = "access",
	[13] = "memory", [14] = "protocol", [15] = "carrier", [16] = "damaged", [17] = "ticket"}
local ELEMENTS = {[0] = "receiver", [1] = "agent", [2] = "carrier", [3] = "sender"}
local TYPES = {[0] = "data", [1] = "event"}
local SEQUENCED, ASK, SAME, NEXT, COUNT = 0x01, 0x02, 0x20, 0x40, 0x80
local LEAST = {[1] = 1, [2] = 0, [3] = 8, [4] = 5, [5] = 36, [6] = 36, [7] = 4, [8] = 8, [9] = 8, [10] = 4, [11] = 8, [12] = 16, [13] = 28}

local ci = Proto("heddle_ci", "Heddle CI")
local f = {
	kind = ProtoField.uint8("heddle_ci.kind", "Kind", base.DEC, KINDS),
	flags = ProtoField.uint8("heddle_ci.flags", "Flags", base.HEX),
	cluster = ProtoField.uint16("heddle_ci.cluster", "Cluster address"),
	index = ProtoField.uint32("heddle_ci.index", "Index", base.HEX),
	slot = ProtoField.uint32("heddle_ci.slot", "Slot"),
	row = ProtoField.uint32("heddle_ci.row", "Row, or port"),
	nonce = ProtoField.uint64("heddle_ci.nonce", "Nonce", base.HEX),
	ticket = ProtoField.uint64("heddle_ci.ticket", "Ticket", base.HEX),
	offset = ProtoField.uint32("heddle_ci.offset", "Offset"),
	source_cluster = ProtoField.uint32("heddle_ci.source_cluster", "Cluster address of the sender"),
	length = ProtoField.uint16("heddle_ci.length", "Length"),
	check = ProtoField.uint16("heddle_ci.check", "Header checksum", base.HEX),
	sequence = ProtoField.uint32("heddle_ci.sequence", "Sequence number"),
	data = ProtoField.bytes("heddle_ci.data", "Data"),
	crc = ProtoField.uint32("heddle_ci.crc", "CRC", base.HEX),
	token = ProtoField.uint32("heddle_ci.token", "Token"),
	wanted = ProtoField.uint32("heddle_ci.wanted", "Bytes wanted"),
	own_index = ProtoField.uint32("heddle_ci.offer.index", "Index", base.HEX),
	own_nonce = ProtoField.uint64("heddle_ci.offer.nonce", "Nonce", base.HEX),
	first_number = ProtoField.uint32("heddle_ci.offer.sequence", "First number"),
	bits = ProtoField.uint8("heddle_ci.offer.bits", "Bits of the size"),
	type = ProtoField.uint8("heddle_ci.offer.type", "Type", base.DEC, TYPES),
	checks = ProtoField.uint8("heddle_ci.offer.checks", "Checks", base.HEX),
	reserved = ProtoField.uint8("heddle_ci.offer.reserved", "Reserved"),
	every = ProtoField.uint32("heddle_ci.offer.nonce_every", "Nonce rolls after"),
	step = ProtoField.uint16("heddle_ci.offer.nonce_step", "by"),
	port = ProtoField.uint16("heddle_ci.offer.port", "Port"),
	first = ProtoField.uint32("heddle_ci.offer.first", "First byte"),
	bytes = ProtoField.uint32("heddle_ci.offer.length", "Bytes"),
	reason = ProtoField.uint16("heddle_ci.reason", "Reason", base.DEC, REASONS),
	element = ProtoField.uint16("heddle_ci.element", "Element", base.DEC, ELEMENTS),
	number = ProtoField.uint32("heddle_ci.number", "Number"),
	value = ProtoField.uint32("heddle_ci.status", "Figure"),
}
local bad_check = ProtoExpert.new("heddle_ci.bad_check", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_packet = ProtoExpert.new("heddle_ci.bad", "Not a valid packet", expert.group.MALFORMED, expert.severity.ERROR)
common.register(ci, f, {bad_check, bad_packet})

local function checksum(bytes)
	local sum = 0
	for i = 1, #bytes, 2 do
		sum = sum + bytes[i] * 256 + bytes[i + 1]
	end
	while sum > 0xffff do
		sum = sum % 0x10000 + math.floor(sum / 0x10000)
	end
	return 0xffff - sum
end

local function append(bytes, number, count)
	for i = count - 1, 0, -1 do
		table.insert(bytes, math.floor(number / 2 ^ (8 * i)) % 256)
	end
end

local function append_range(bytes, range)
	for i = 0, range:len() - 1 do
		table.insert(bytes, range(i, 1):uint())
	end
end

local function show_check(tree, field, range, right, digits)
	common.show_check(tree, field, range, right, bad_check, digits)
end

local function show_offer(body, tree)
	tree:add(f.own_index, body(0, 4))
	tree:add(f.own_nonce, body(4, 8))
	tree:add(f.first_number, body(12, 4))
	tree:add(f.bits, body(16, 1))
	tree:add(f.type, body(17, 1))
	tree:add(f.checks, body(18, 1))
	tree:add(f.reserved, body(19, 1))
	tree:add(f.every, body(20, 4))
	tree:add(f.step, body(24, 2))
	tree:add(f.port, body(26, 2))
	tree:add(f.first, body(28, 4))
	tree:add(f.bytes, body(32, 4))
	return string.format(", port %d", body(26, 2):uint())
end

local function show_reason(body, at, tree)
	tree:add(f.reason, body(at, 2))
	return ", " .. (REASONS[body(at, 2):uint()] or "unknown")
end

local BODIES = {
	[3] = function(body, tree)
		tree:add(f.token, body(0, 4))
		tree:add(f.wanted, body(4, 4))
		return string.format(", %d bytes", body(4, 4):uint())
	end,
	[4] = function(body, tree)
		tree:add(f.token, body(0, 4))
		tree:add(f.data, body(4))
		return string.format(", %d bytes", body:len() - 4)
	end,
	[5] = show_offer,
	[6] = show_offer,
	[7] = function(body, tree)
		if body:len() == 12 then
			tree:add(f.ticket, body(4, 8))
		end
		return show_reason(body, 0, tree)
	end,
	[8] = function(body, tree)
		tree:add(f.number, body(0, 4))
		return show_reason(body, 4, tree)
	end,
	[9] = function(body, tree)
		tree:add(f.number, body(0, 4))
		tree:add(f.own_index, body(4, 4))
		return ""
	end,
	[10] = function(body, tree)
		tree:add(f.number, body(0, 4))
		return string.format(", %d", body(0, 4):uint())
	end,
	[11] = function(body, tree)
		local text = show_reason(body, 0, tree)
		tree:add(f.element, body(2, 2))
		tree:add(f.number, body(4, 4))
		return text .. ", by the " .. (ELEMENTS[body(2, 2):uint()] or "unknown element")
	end,
	[12] = function(body, tree)
		tree:add(f.own_index, body(0, 4))
		tree:add(f.own_nonce, body(4, 8))
		tree:add(f.token, body(12, 4))
		return ""
	end,
	[13] = function(body, tree)
		tree:add(f.token, body(0, 4))
		for i = 1, 6 do
			tree:add(f.value, body(4 * i, 4))
		end
		return ""
	end,
}

-- One packet at the front of @buffer; @last: the one before it, or nil. Returns what follows it has to know, and its text.
local function show_packet(buffer, tree, last)
	local kind, flags = buffer(0, 1):uint(), buffer(1, 1):uint()
	local function has(bits) return bit.band(flags, bits) ~= 0 end
	local item = tree:add(ci, buffer(0, 2))
	local packed = (has(SAME) or has(NEXT) or has(COUNT))
	if KINDS[kind] == nil or bit.band(flags, 0x1c) ~= 0 or (packed and last == nil) then
		item:add_proto_expert_info(bad_packet)
		return nil
	end
	local size = 6 + (has(SAME) and 0 or 14) + (has(NEXT) and 0 or 4) + ((has(SEQUENCED) and not has(COUNT)) and 4 or 0)
	if buffer:len() < size + 4 then
		item:add_proto_expert_info(bad_packet)
		return nil
	end
	local at, now = 2, {bytes = {kind, bit.band(flags, 0x03)}}
	item:add(f.kind, buffer(0, 1))
	item:add(f.flags, buffer(1, 1))
	if has(SAME) then
		now.where = last.where
	else
		now.where = buffer(2, 14)
		at = 16
	end
	item:add(f.cluster, now.where(0, 2))
	item:add(f.index, now.where(2, 4))
	item:add(f.slot, math.floor(now.where(2, 4):uint() / 0x400000)):set_generated()
	item:add(f.row, now.where(2, 4):uint() % 0x400000):set_generated()
	item:add(f.nonce, now.where(6, 8))
	append_range(now.bytes, now.where)
	if has(NEXT) then
		now.offset = (last.offset + last.length) % 0x100000000
		item:add(f.offset, now.offset):set_generated()
	else
		now.offset = buffer(at, 4):uint()
		item:add((kind == 5 or kind == 6 or kind == 12) and f.source_cluster or f.offset, buffer(at, 4))
		at = at + 4
	end
	append(now.bytes, now.offset, 4)
	now.length = buffer(at, 2):uint()
	append(now.bytes, now.length, 2)
	item:add(f.length, buffer(at, 2))
	local check = buffer(at + 2, 2)
	at = at + 4
	append(now.bytes, 0, 2)
	if has(SEQUENCED) then
		if has(COUNT) then
			now.sequence = (last.sequence + 1) % 0x100000000
			item:add(f.sequence, now.sequence):set_generated()
		else
			now.sequence = buffer(at, 4):uint()
			item:add(f.sequence, buffer(at, 4))
			at = at + 4
		end
		append(now.bytes, now.sequence, 4)
	end
	local right = checksum(now.bytes)
	show_check(item, f.check, check, right, 4)
	if check:uint() ~= right then
		return nil
	end
	if now.length < LEAST[kind] or buffer:len() < at + now.length + 4 then
		item:add_proto_expert_info(bad_packet)
		return nil
	end
	now.bytes[23], now.bytes[24] = math.floor(right / 256), right % 256
	local text = KINDS[kind]
	if now.length > 0 then
		local body = buffer(at, now.length)
		append_range(now.bytes, body)
		if BODIES[kind] ~= nil then
			text = text .. BODIES[kind](body, item)
		else
			item:add(f.data, body)
			text = text .. string.format(", %d bytes at %d", now.length, now.offset)
		end
	end
	show_check(item, f.crc, buffer(at + now.length, 4), common.crc32c(now.bytes), 8)
	now.total = at + now.length + 4
	item:set_len(now.total)
	item:append_text(": " .. text)
	now.text = text
	return now
end

function ci.dissector(buffer, pinfo, tree)
	local at, last, texts = 0, nil, {}
	pinfo.cols.protocol = "CI"
	while at < buffer:len() and buffer(at, 1):uint() ~= 0 do
		if buffer:len() - at < 2 then
			tree:add(ci, buffer(at)):add_proto_expert_info(bad_packet)
			break
		end
		last = show_packet(buffer(at), tree, last)
		if last == nil then
			break
		end
		table.insert(texts, last.text)
		at = at + last.total
	end
	pinfo.cols.info = table.concat(texts, "; ")
	return buffer:len()
end

DissectorTable.get("udp.port"):add(18490, ci)

local frame = Proto("heddle_ci_frame", "Heddle CI in an Ethernet frame")
common.take_frames(0x88b5, frame, function(buffer) return KINDS[buffer(0, 1):uint()] ~= nil end, ci.dissector)
