-- Wireshark dissector of cells, heddle-push(7), in UDP datagrams to port 4793 and in Ethernet frames of type 0x88b6: several in each.
--
--   tshark -X lua_script:heddle-cell.lua -r FILE
--
-- The checksum of a packet is verified too: its cells are followed through the capture, also where some are missing or come again.

local common = require("heddle-common")

local PORT = 4793
local ETHERTYPE = 0x88b6
local VERSION = 1
local HEADER, DATA = 32, 256
local OPERATIONS = {[1] = "send", [2] = "write", [3] = "read request", [4] = "read response", [5] = "answer"}
local CODES = {[0] = "acknowledged", [1] = "send again from here", [2] = "not ready", [3] = "invalid", [4] = "no access", [5] = "failed"}
local FIRST, LAST, IMMEDIATE = 1, 2, 4

local cell = Proto("heddle_cell", "Heddle cell")
local f = {
	to = ProtoField.ether("heddle_cell.to", "Destination"),
	from = ProtoField.ether("heddle_cell.from", "Source"),
	version = ProtoField.uint8("heddle_cell.version", "Version", base.DEC, nil, 0xf0),
	operation = ProtoField.uint8("heddle_cell.operation", "Operation", base.DEC, OPERATIONS, 0x0f),
	first = ProtoField.bool("heddle_cell.first", "First cell", 8, nil, 0x01),
	last = ProtoField.bool("heddle_cell.last", "Last cell", 8, nil, 0x02),
	has_immediate = ProtoField.bool("heddle_cell.has_immediate", "Immediate data", 8, nil, 0x04),
	acknowledged = ProtoField.bool("heddle_cell.acknowledged", "Acknowledged", 8, nil, 0x08),
	solicited = ProtoField.bool("heddle_cell.solicited", "Solicited", 8, nil, 0x10),
	length = ProtoField.uint16("heddle_cell.length", "Payload length"),
	dest_qp = ProtoField.uint24("heddle_cell.dest_qp", "Destination queue pair", base.HEX),
	source_qp = ProtoField.uint24("heddle_cell.source_qp", "Source queue pair", base.HEX),
	psn = ProtoField.uint24("heddle_cell.psn", "Packet sequence number"),
	number = ProtoField.uint32("heddle_cell.number", "Cell sequence number"),
	address = ProtoField.uint64("heddle_cell.address", "Virtual address", base.HEX),
	handle = ProtoField.uint32("heddle_cell.handle", "Memory handle", base.HEX),
	read_bytes = ProtoField.uint32("heddle_cell.read_bytes", "Bytes to read"),
	data = ProtoField.bytes("heddle_cell.data", "Data"),
	code = ProtoField.uint8("heddle_cell.code", "Code", base.DEC, CODES),
	value = ProtoField.uint24("heddle_cell.value", "Cells of the next packet, or timer"),
	immediate = ProtoField.uint32("heddle_cell.immediate", "Immediate data", base.HEX),
	packet_crc = ProtoField.uint32("heddle_cell.packet_crc", "CRC of the packet", base.HEX),
	crc = ProtoField.uint32("heddle_cell.crc", "CRC of the cell", base.HEX),
}
local bad_check = ProtoExpert.new("heddle_cell.bad_check", "Wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_cell = ProtoExpert.new("heddle_cell.bad", "Not a valid cell", expert.group.MALFORMED, expert.severity.ERROR)
local bad_address = ProtoExpert.new("heddle_cell.bad_address", "Not an address of the frame", expert.group.PROTOCOL, expert.severity.ERROR)
common.register(cell, f, {bad_check, bad_cell, bad_address})

local crc_add, crc_end = common.crc_add, common.crc_end

-- Packets under way: the checksum before each cell, by packet and number of the cell; and what was found, by frame and place.
local under_way, verdicts = {}, {}
function cell.init()
	under_way, verdicts = {}, {}
end

local function packet_verdict(buffer, pinfo, at, key, number, last, from, count)
	local place = pinfo.number .. "/" .. at
	if pinfo.visited then
		return verdicts[place]
	end
	local before = number == 0 and 0xffffffff or (under_way[key] or {})[number]
	if before == nil then
		return nil -- cells before it are not in the capture
	end
	local after = crc_add(before, buffer:bytes(), from, count)
	if number == 0 and under_way[key] == nil then
		under_way[key] = {}
	end
	under_way[key] = under_way[key] or {}
	under_way[key][number + 1] = after
	verdicts[place] = last and crc_end(after) or nil
	return verdicts[place]
end

-- The length of the cell at the beginning of the buffer; nil: it makes no sense.
local function cell_length(buffer)
	if buffer:len() < HEADER + 4 or bit.rshift(buffer(12, 1):uint(), 4) ~= VERSION then
		return nil
	end
	local operation, flags, data = bit.band(buffer(12, 1):uint(), 0xf), buffer(13, 1):uint(), buffer(14, 2):uint()
	if OPERATIONS[operation] == nil or data > DATA then
		return nil
	end
	local before = 0
	if bit.band(flags, FIRST) ~= 0 and (operation == 2 or operation == 3) then
		before = operation == 3 and 16 or 12
	end
	local behind = (bit.band(flags, IMMEDIATE) ~= 0 and 4 or 0) + (bit.band(flags, LAST) ~= 0 and 4 or 0) + 4
	local length = HEADER + before + data + behind
	return length <= buffer:len() and length or nil, before
end

local function show_cell(buffer, pinfo, tree, at, framed)
	local length, before = cell_length(buffer)
	local item = tree:add(cell, buffer(0, length or buffer:len()))
	if length == nil then
		item:add_proto_expert_info(bad_cell)
		return nil
	end
	local operation, flags, data = bit.band(buffer(12, 1):uint(), 0xf), buffer(13, 1):uint(), buffer(14, 2):uint()
	local psn, number = buffer(25, 3):uint(), buffer(28, 4):uint()
	for _, address in ipairs({{f.to, buffer(0, 6), pinfo.dl_dst}, {f.from, buffer(6, 6), pinfo.dl_src}}) do
		local shown = item:add(address[1], address[2])
		if framed and tostring(address[2]:ether()) ~= tostring(address[3]) then
			shown:add_proto_expert_info(bad_address)
		end
	end
	item:add(f.version, buffer(12, 1))
	item:add(f.operation, buffer(12, 1))
	for _, flag in ipairs({f.first, f.last, f.has_immediate, f.acknowledged, f.solicited}) do
		item:add(flag, buffer(13, 1))
	end
	item:add(f.length, buffer(14, 2))
	item:add(f.dest_qp, buffer(17, 3))
	item:add(f.source_qp, buffer(21, 3))
	item:add(f.psn, buffer(25, 3))
	item:add(f.number, buffer(28, 4))
	local what = string.format("%s %d/%d", OPERATIONS[operation], psn, number)
	if before > 0 then
		item:add(f.address, buffer(HEADER, 8))
		item:add(f.handle, buffer(HEADER + 8, 4))
	end
	if operation == 3 then
		item:add(f.read_bytes, buffer(HEADER + 12, 4))
		what = what .. string.format(", %d bytes", buffer(HEADER + 12, 4):uint())
	elseif operation == 5 then
		item:add(f.code, buffer(HEADER, 1))
		item:add(f.value, buffer(HEADER + 1, 3))
		what = string.format("answer %d: %s, %d", psn, CODES[buffer(HEADER, 1):uint()] or "unknown", buffer(HEADER + 1, 3):uint())
	else
		what = what .. string.format(", %d bytes", data)
	end
	if data > 0 then
		item:add(f.data, buffer(HEADER + before, data))
	end
	local rest = HEADER + before + data
	if bit.band(flags, IMMEDIATE) ~= 0 then
		item:add(f.immediate, buffer(rest, 4))
		rest = rest + 4
	end
	local last = bit.band(flags, LAST) ~= 0
	local key = string.format("%s %s %d %d %d", buffer(6, 6):bytes():tohex(), buffer(20, 4):bytes():tohex(), buffer(16, 4):uint(), operation, psn)
	local packet = packet_verdict(buffer, pinfo, at, key, number, last, HEADER, rest - HEADER)
	if last then
		common.show_check(item, f.packet_crc, buffer(rest, 4), packet, bad_check)
		rest = rest + 4
	end
	common.show_check(item, f.crc, buffer(rest, 4), crc_end(crc_add(0xffffffff, buffer:bytes(), 0, rest)), bad_check)
	item:append_text(", " .. what)
	return length, what
end

-- Ethernet pads short frames with zeroes.
local function is_padding(buffer)
	return buffer:len() < HEADER and buffer:bytes():tohex():find("[^0]") == nil
end

local function dissect(buffer, pinfo, tree, framed)
	local at, cells = 0, {}
	pinfo.cols.protocol = "CELL"
	while at < buffer:len() and not (framed and is_padding(buffer(at))) do
		local length, what = show_cell(buffer(at):tvb(), pinfo, tree, at, framed)
		if length == nil then
			break
		end
		table.insert(cells, what)
		at = at + length
	end
	pinfo.cols.info = table.concat(cells, "; ")
	return buffer:len()
end

function cell.dissector(buffer, pinfo, tree)
	return dissect(buffer, pinfo, tree, false)
end
DissectorTable.get("udp.port"):add(PORT, cell)

local frame = Proto("heddle_cell_frame", "Heddle cells in an Ethernet frame")
common.take_frames(ETHERTYPE, frame, function(buffer) return buffer:len() >= HEADER end,
	function(buffer, pinfo, tree) return dissect(buffer, pinfo, tree, true) end)
