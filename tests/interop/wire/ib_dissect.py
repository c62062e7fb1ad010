#!/usr/bin/python3
"""Has tshark and scapy take apart the packets that ib_dissect and ib_cm_dissect print.

tshark: every field must have the value that was encoded, and no packet may be malformed or earn an expert's error.
scapy: the ICRC it computes for an IPv4 packet must be ours. Exit status 77: neither is installed.

usage: ib_dissect.py PROGRAM
"""
import ipaddress
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

ETHERNET, ERF = 1, 197
RD, CNP, XRC = 0x40, 0x81, 0xa0


def pcap_write(path, link_type, frames):
    with open(path, 'wb') as f:
        f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, link_type))
        for frame in frames:
            f.write(struct.pack('<IIII', 0, 0, len(frame), len(frame)) + frame)


def frame_ethernet(row):
    framing, packet, _ = row
    return bytes.fromhex('020000000001020000000002') + (b'\x08\x00' if framing == 'ipv4' else b'\x86\xdd') + packet


def frame_erf(row):
    """An ERF record of type 21: time stamp, type, flags, record length, lost, wire length."""
    packet = row[1]
    size = 16 + len(packet)
    pad = -size % 8
    return struct.pack('>QBBHHH', 0, 21, 4, size + pad, 0, len(packet)) + packet + bytes(pad)


def values_of(tree, found):
    """Every value of every field, wherever tshark nests it."""
    if isinstance(tree, list):
        for branch in tree:
            values_of(branch, found)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if isinstance(value, (dict, list)):
                values_of(value, found)
            if isinstance(value, (str, list)):
                found.setdefault(name, []).extend([value] if isinstance(value, str) else
                                                  [v for v in value if isinstance(v, str)])


def same(expected, shown):
    shown = shown.replace(' ', '')
    if not expected.startswith('0x'):
        if len(expected) == 32 and shown.count(':') < 15:
            return ipaddress.IPv6Address(bytes.fromhex(expected)) == ipaddress.IPv6Address(shown)
        return bytes.fromhex(expected) == bytes.fromhex(shown.replace(':', ''))
    if shown in ('True', 'False'):
        return bool(int(expected, 16)) == (shown == 'True')
    return int(expected, 16) == int(shown, 0)


def understood(opcode):
    """tshark 4.0 does not know what follows the BTH of XRC and of the congestion notification, and looks for the RDETH
    of RD eight bytes late. Of those only what comes before is compared."""
    return opcode != CNP and opcode & 0xe0 not in (RD, XRC)


def complaints_about(fields, shown):
    found = {}
    values_of(shown['_source']['layers'], found)
    complaints = []
    if understood(int(fields['infiniband.bth.opcode'], 16)):
        if '_ws.malformed' in json.dumps(shown):
            complaints.append('malformed')
        # 0x800000 is "error", 0x600000 "warning".
        complaints += ['expert: %s' % found.get('_ws.expert.message')
                       for severity in found.get('_ws.expert.severity', []) if int(severity, 0) >= 0x600000]
    else:
        fields = {name: value for name, value in fields.items()
                  if name.startswith(('infiniband.lrh', 'infiniband.grh', 'infiniband.bth'))}
    for name, expected in fields.items():
        if not any(same(expected, value) for value in found.get(name, [])):
            complaints.append('%s: encoded %s, shown %s' % (name, expected, found.get(name)))
    return len(fields), complaints


def check_tshark(link_type, rows, frame):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'packets.pcap')
        pcap_write(path, link_type, [frame(row) for row in rows])
        out = subprocess.run(['tshark', '-r', path, '-T', 'json', '-o', 'udp.check_checksum:TRUE', '-o',
                              'ip.check_checksum:TRUE'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    packets = json.loads(out.stdout)
    assert len(packets) == len(rows)
    bad = compared = 0
    for (framing, packet, fields), shown in zip(rows, packets):
        count, complaints = complaints_about(fields, shown)
        compared += count
        if complaints:
            bad += 1
            print('%s: %s\n  %s' % (framing, '; '.join(complaints), packet.hex()))
    print('tshark: %d packets, %d fields compared, %d packets differ' % (len(rows), compared, bad))
    return bad


def check_scapy(rows):
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP
    bad = checked = 0
    for framing, packet, fields in rows:
        if framing != 'ipv4':
            continue
        parsed = IP(packet)
        icrc = parsed[BTH].icrc
        # scapy takes the UDP payload for ICRC and data; it masks and sums by itself.
        computed = int.from_bytes(parsed[BTH].compute_icrc(b''), 'big')
        checked += 1
        if not icrc == computed == int(fields['infiniband.invariant.crc'], 16):
            bad += 1
            print('scapy: ICRC of %s is 0x%08x' % (packet.hex(), computed))
    print('scapy: %d ICRCs, %d differ' % (checked, bad))
    return bad


def main():
    lines = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    rows = []
    for line in lines:
        framing, packet, fields = line.split('\t')
        rows.append((framing, bytes.fromhex(packet), dict(field.split('=') for field in fields.split(' '))))
    assert rows
    bad, tools = 0, 0
    if shutil.which('tshark'):
        tools += 1
        bad += check_tshark(ETHERNET, [row for row in rows if row[0] != 'link'], frame_ethernet)
        on_links = [row for row in rows if row[0] == 'link']
        bad += check_tshark(ERF, on_links, frame_erf) if on_links else 0
    else:
        print('no tshark')
    try:
        import scapy.contrib.roce  # noqa: F401
        have_scapy = True
    except ImportError:
        have_scapy = False
        print('no scapy')
    if have_scapy:
        tools += 1
        bad += check_scapy(rows)
    if not tools:
        return 77
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
