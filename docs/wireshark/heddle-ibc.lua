-- Wireshark dissector of IBC packets, heddle-ibc(7), and of the frames that carry them over links.
--
--   tshark -X lua_script:heddle-ibc.lua -r FILE
--
-- It finds frames in UDP datagrams of any port, by their first bytes, and in Ethernet frames of type 0x88b5. Captures of
-- link type USER0 (147) hold packets without frames.

local common = require("heddle-common")

local TYPES = {[1] = "read request", [2] = "write request", [3] = "write request without acknowledgement",
	[4] = "read response", [5] = "write response", [6] = "NACK"}
local REASONS = {[0] = "none", [1] = "no such application", [2] = "no such port", [3] = "port down",
	[4] = "pointer out of range", [5] = "too long", [6] = "loop", [7] = "not allowed", [8] = "no receive in time"}
local OPERATIONS = {[1] = "echo", [2] = "read ports", [3] = "set port", [4] = "read counters", [5] = "read port counters",
	[6] = "read applications", [7] = "read NICs", [8] = "trace"}
local STATES = {[0] = "none", [1] = "down", [2] = "up"}
local KINDS = {[1] = "packet", [2] = "keep-alive"}
local CONFIG_APID = 31
local VERSION = 1

local ibc = Proto("heddle_ibc", "Heddle IBC")
local f = {
	version = ProtoField.uint8("heddle_ibc.version", "Version", base.DEC, nil, 0xf0),
	type = ProtoField.uint8("heddle_ibc.type", "Type", base.DEC, TYPES, 0x0f),
	reverse = ProtoField.bool("heddle_ibc.reverse", "Reverse", 8, nil, 0x80),
	reserved = ProtoField.uint8("heddle_ibc.reserved", "Reserved", base.DEC, nil, 0x40),
	pointer = ProtoField.uint8("heddle_ibc.pointer", "Pointer", base.DEC, nil, 0x3f),
	hops = ProtoField.uint8("heddle_ibc.hops", "Hops"),
	reason = ProtoField.uint8("heddle_ibc.reason", "Reason", base.DEC, REASONS),
	source = ProtoField.uint8("heddle_ibc.source", "Source APID"),
	destination = ProtoField.uint8("heddle_ibc.destination", "Destination APID"),
	length = ProtoField.uint16("heddle_ibc.length", "Payload length"),
	node = ProtoField.uint64("heddle_ibc.node", "Destination node"),
	guid = ProtoField.uint64("heddle_ibc.guid", "GUID", base.HEX),
	transaction = ProtoField.uint32("heddle_ibc.transaction", "Transaction"),
	check = ProtoField.uint32("heddle_ibc.check", "Header check", base.HEX),
	route = ProtoField.string("heddle_ibc.route", "Route"),
	port = ProtoField.uint8("heddle_ibc.route.port", "Port"),
	mark = ProtoField.uint8("heddle_ibc.route.end", "End of route"),
	route_padding = ProtoField.bytes("heddle_ibc.route.padding", "Padding"),
	payload = ProtoField.bytes("heddle_ibc.payload", "Payload"),
	padding = ProtoField.bytes("heddle_ibc.padding", "Padding"),
	crc = ProtoField.uint32("heddle_ibc.crc", "CRC", base.HEX),
	key = ProtoField.bytes("heddle_ibc.command.key", "Key"),
	operation = ProtoField.uint8("heddle_ibc.command.operation", "Operation", base.DEC, OPERATIONS),
	command_port = ProtoField.uint8("heddle_ibc.command.port", "Port"),
	state = ProtoField.uint8("heddle_ibc.command.state", "State", base.DEC, STATES),
	command_reserved = ProtoField.uint8("heddle_ibc.command.reserved", "Reserved"),
	data = ProtoField.bytes("heddle_ibc.command.data", "Data"),
	plain = ProtoField.bool("heddle_ibc.answer.plain", "Plain switch", 8, nil, 0x01),
	arrival = ProtoField.uint8("heddle_ibc.answer.arrival", "Port of arrival"),
	count = ProtoField.uint8("heddle_ibc.answer.count", "Records"),
	answer_node = ProtoField.uint64("heddle_ibc.answer.node", "Node"),
	record_port = ProtoField.uint8("heddle_ibc.answer.port", "Port"),
	record_state = ProtoField.uint8("heddle_ibc.answer.state", "State", base.DEC, STATES),
	nic_port = ProtoField.uint8("heddle_ibc.answer.nic_port", "Port of the NIC"),
	record_guid = ProtoField.uint64("heddle_ibc.answer.guid", "GUID", base.HEX),
	apid = ProtoField.uint8("heddle_ibc.answer.apid", "APID"),
	number = ProtoField.uint64("heddle_ibc.answer.number", "Counter"),
}
local bad_check = ProtoExpert.new("heddle_ibc.bad_check", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_packet = ProtoExpert.new("heddle_ibc.bad", "Not a valid packet", expert.group.MALFORMED, expert.severity.ERROR)
common.register(ibc, f, {bad_check, bad_packet})

local crc_add, crc_end = common.crc_add, common.crc_end
local function show_check(tree, field, range, right)
	common.show_check(tree, field, range, right, bad_check)
end

local function padded(bytes)
	return math.floor((bytes + 3) / 4) * 4
end

local function show_command(buffer, tree)
	tree:add(f.key, buffer(0, 16))
	tree:add(f.operation, buffer(16, 1))
	tree:add(f.command_port, buffer(17, 1))
	tree:add(f.state, buffer(18, 1))
	tree:add(f.command_reserved, buffer(19, 1))
	if buffer:len() > 20 then
		tree:add(f.data, buffer(20))
	end
	return OPERATIONS[buffer(16, 1):uint()] or "unknown"
end

-- The length of a record of each operation, and how it is shown.
local RECORDS = {
	[2] = {2, function(at, tree) tree:add(f.record_port, at(0, 1)) tree:add(f.record_state, at(1, 1)) end},
	[3] = {2, function(at, tree) tree:add(f.record_port, at(0, 1)) tree:add(f.record_state, at(1, 1)) end},
	[4] = {8, function(at, tree) tree:add(f.number, at(0, 8)) end},
	[5] = {8, function(at, tree) tree:add(f.number, at(0, 8)) end},
	[6] = {1, function(at, tree) tree:add(f.apid, at(0, 1)) end},
	[7] = {10, function(at, tree)
		tree:add(f.record_port, at(0, 1))
		tree:add(f.nic_port, at(1, 1))
		tree:add(f.record_guid, at(2, 8))
	end},
	[8] = {1, function(at, tree) tree:add(f.record_port, at(0, 1)) end},
}

local function show_answer(buffer, tree)
	local operation, count = buffer(0, 1):uint(), buffer(3, 1):uint()
	local record = RECORDS[operation]
	if record == nil or buffer:len() ~= 12 + record[1] * count then
		return nil
	end
	tree:add(f.operation, buffer(0, 1))
	tree:add(f.plain, buffer(1, 1))
	tree:add(f.arrival, buffer(2, 1))
	tree:add(f.count, buffer(3, 1))
	tree:add(f.answer_node, buffer(4, 8))
	for i = 0, count - 1 do
		local at = buffer(12 + record[1] * i, record[1]):tvb()
		record[2](at, tree:add(buffer(12 + record[1] * i, record[1]), "Record " .. (i + 1)))
	end
	return OPERATIONS[operation]
end

local function show_payload(buffer, tree, type, source, destination)
	local range = buffer(0)
	local item = tree:add(f.payload, range)
	local what
	if type <= 3 and destination == CONFIG_APID and buffer:len() >= 20 then
		what = show_command(buffer, item:add(range, "Command"))
	elseif (type == 4 or type == 5) and source == CONFIG_APID and buffer:len() >= 12 then
		local inner = item:add(range, "Answer")
		what = show_answer(buffer, inner)
		if what == nil and buffer:len() >= 20 and buffer(16, 1):uint() == 1 then
			what = show_command(buffer, inner) -- an echo
		end
	end
	return what
end

function ibc.dissector(buffer, pinfo, tree)
	local length = buffer:len()
	if length < 40 or bit.rshift(buffer(0, 1):uint(), 4) ~= VERSION then
		return 0
	end
	local type, hops, payload = bit.band(buffer(0, 1):uint(), 0xf), buffer(2, 1):uint(), buffer(6, 2):uint()
	local route_bytes = padded(hops + 1)
	local at = 32 + route_bytes
	local whole = at + padded(payload) + 4
	pinfo.cols.protocol = "IBC"
	local item = tree:add(ibc, buffer(0, math.min(whole, length)))
	if hops > 62 or whole > length then
		item:add_proto_expert_info(bad_packet, "The lengths do not match that of the packet")
		return length
	end
	item:add(f.version, buffer(0, 1))
	item:add(f.type, buffer(0, 1))
	item:add(f.reverse, buffer(1, 1))
	item:add(f.reserved, buffer(1, 1))
	item:add(f.pointer, buffer(1, 1))
	item:add(f.hops, buffer(2, 1))
	item:add(f.reason, buffer(3, 1))
	item:add(f.source, buffer(4, 1))
	item:add(f.destination, buffer(5, 1))
	item:add(f.length, buffer(6, 2))
	item:add(f.node, buffer(8, 8))
	item:add(f.guid, buffer(16, 8))
	item:add(f.transaction, buffer(24, 4))

	local bytes = buffer:bytes()
	local header = crc_add(crc_add(0xffffffff, bytes, 0, 28), bytes, 32, route_bytes)
	show_check(item, f.check, buffer(28, 4), crc_end(header))
	local ports = {}
	for i = 0, hops - 1 do
		ports[i + 1] = tostring(buffer(32 + i, 1):uint())
	end
	ports[hops + 1] = tostring(buffer(32 + hops, 1):uint())
	local reverse = bit.band(buffer(1, 1):uint(), 0x80) ~= 0
	local route = string.format("%s [%s;%d]", table.concat(ports, "-"), reverse and "Rev" or "Fwd",
		bit.band(buffer(1, 1):uint(), 0x3f))
	local way = item:add(f.route, buffer(32, route_bytes), route)
	for i = 0, hops - 1 do
		way:add(f.port, buffer(32 + i, 1))
	end
	way:add(f.mark, buffer(32 + hops, 1))
	if route_bytes > hops + 1 then
		way:add(f.route_padding, buffer(32 + hops + 1, route_bytes - hops - 1))
	end

	local what = TYPES[type] or "unknown type"
	local source, destination = buffer(4, 1):uint(), buffer(5, 1):uint()
	if payload > 0 then
		local command = show_payload(buffer(at, payload):tvb(), item, type, source, destination)
		what = command and what .. ", " .. command or what
	end
	if padded(payload) > payload then
		item:add(f.padding, buffer(at + payload, padded(payload) - payload))
	end
	local crc = crc_add(crc_add(crc_add(0xffffffff, bytes, 0, 1), bytes, 2, 26), bytes, at, payload)
	show_check(item, f.crc, buffer(whole - 4, 4), crc_end(crc))
	if type == 6 then
		what = what .. ": " .. (REASONS[buffer(3, 1):uint()] or "unknown reason")
	end
	pinfo.cols.info = string.format("%d -> %d %s, route %s, transaction %d, %d bytes", source, destination, what, route,
		buffer(24, 4):uint(), payload)
	return whole
end

-- Frames of links.
local link = Proto("heddle_link", "Heddle link")
local l = {
	magic = ProtoField.string("heddle_link.magic", "Mark"),
	kind = ProtoField.uint8("heddle_link.kind", "Kind", base.DEC, KINDS),
	hears = ProtoField.bool("heddle_link.hears", "Hears the other end", 8, nil, 0x01),
	sequence = ProtoField.uint32("heddle_link.sequence", "Sequence number"),
	length = ProtoField.uint16("heddle_link.length", "Length of the packet"),
	reserved = ProtoField.uint16("heddle_link.reserved", "Reserved"),
}
link.fields = {l.magic, l.kind, l.hears, l.sequence, l.length, l.reserved}
local bad_frame = ProtoExpert.new("heddle_link.bad", "Not a valid frame", expert.group.MALFORMED, expert.severity.ERROR)
link.experts = {bad_frame}

function link.dissector(buffer, pinfo, tree)
	if buffer:len() < 12 or buffer(0, 2):string() ~= "HV" then
		return 0
	end
	local length = buffer(8, 2):uint()
	local item = tree:add(link, buffer(0, 12))
	pinfo.cols.protocol = "HVLINK"
	item:add(l.magic, buffer(0, 2))
	item:add(l.kind, buffer(2, 1))
	item:add(l.hears, buffer(3, 1))
	item:add(l.sequence, buffer(4, 4))
	item:add(l.length, buffer(8, 2))
	item:add(l.reserved, buffer(10, 2))
	if 12 + length > buffer:len() then
		item:add_proto_expert_info(bad_frame, "The packet is longer than the frame")
	elseif length > 0 then
		ibc.dissector(buffer(12, length):tvb(), pinfo, tree)
	else
		pinfo.cols.info = "Keep-alive, sequence " .. buffer(4, 4):uint()
	end
	return buffer:len()
end

link:register_heuristic("udp", function(buffer, pinfo, tree)
	if buffer:len() < 12 or buffer(0, 2):string() ~= "HV" or KINDS[buffer(2, 1):uint()] == nil then
		return false
	end
	link.dissector(buffer, pinfo, tree)
	return true
end)
local frame = Proto("heddle_link_frame", "Heddle link in an Ethernet frame")
common.take_frames(0x88b5, frame, function(buffer) return buffer:len() >= 12 and buffer(0, 2):string() == "HV" end, link.dissector)
DissectorTable.get("wtap_encap"):add(wtap.USER0, ibc)
