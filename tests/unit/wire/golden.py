#!/usr/bin/python3
"""Makes golden packets, with what they hold, by programs other than Heddle.

golden.py rxe CAPTURE > golden_rxe.h    one packet of each IP version and opcode out of a capture of Linux rdma_rxe (Ethernet,
                                        pcap), with the values that tshark shows
golden.py scapy > golden_scapy.h        packets that scapy builds, ICRC included, with the values given to it

The capture in use was taken between two kernels 6.1: ibv_rc_pingpong -s 37, ibv_uc_pingpong -s 38, ibv_ud_pingpong -s 21,
ib_read_lat -s 23, ib_write_lat -s 33, ib_atomic_lat with both operations, each over IPv4 and IPv6.
"""
import json
import subprocess
import sys

NUMBERS = ['bth.opcode', 'bth.se', 'bth.m', 'bth.padcnt', 'bth.tver', 'bth.p_key', 'bth.destqp', 'bth.a', 'bth.psn',
           'deth.q_key', 'deth.srcqp', 'reth.va', 'reth.r_key', 'reth.dmalen', 'atomiceth.swapdt', 'atomiceth.cmpdt',
           'aeth.syndrome', 'aeth.msn', 'atomicacketh.origremdt']
LONGEST = 200


def header(name, origin, rows):
    print('/* Golden packets: %s. Made by golden.py. */' % origin)
    print('static const struct golden %s[] = {' % name)
    for packet, fields in rows:
        lines = [packet[i:i + 84] for i in range(0, len(packet), 84)]
        texts, line = [], ''
        for field in fields:
            if len(line) + len(field) > 84:
                texts.append(line)
                line = ''
            line += field + ' '
        texts.append(line)
        print('\t{%s,\n\t %s},' % ('\n\t '.join('"%s"' % part for part in lines),
                                   '\n\t '.join('"%s"' % part for part in texts)))
    print('};')


def number(text):
    return {'True': 1, 'False': 0}[text] if text in ('True', 'False') else int(text, 0)


def rxe(capture):
    shown = json.loads(subprocess.run(['tshark', '-r', capture, '-T', 'json', '-x'], check=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL).stdout)
    plain = subprocess.run(['tshark', '-r', capture, '-T', 'fields', '-E', 'separator=/t'] +
                           [arg for name in NUMBERS for arg in ('-e', 'infiniband.' + name)], check=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode().splitlines()
    rows = {}
    for packet, line in zip(shown, plain):
        frame = packet['_source']['layers']['frame_raw'][0]
        values = dict(zip(NUMBERS, line.split('\t')))
        key = frame[24:28], int(values['bth.opcode'], 0)
        if len(frame) // 2 <= LONGEST and key not in rows:
            rows[key] = frame[28:], ['infiniband.%s=0x%x' % (name, number(value)) for name, value in values.items()
                                     if value != '']
    header('golden_rxe', 'Linux rdma_rxe over IPv4 and IPv6, read by tshark', [rows[key] for key in sorted(rows)])


def scapy():
    from scapy.contrib.roce import AETH, BTH, cnp, opcode
    from scapy.layers.inet import IP, UDP
    from scapy.packet import Raw

    def build(transport, fields, ip, **udp):
        packet = IP(src='192.0.2.7', dst='198.51.100.9', **ip) / UDP(sport=49321, dport=4791, **udp) / transport
        return bytes(packet).hex(), ['infiniband.bth.%s=0x%x' % field for field in fields.items()]

    payload = bytes(range(1, 40))
    rows = []
    for transport, op, size in [('RC', 'SEND_FIRST', 36), ('RC', 'SEND_ONLY', 0), ('UC', 'SEND_ONLY', 37),
                                ('UC', 'SEND_LAST', 38), ('RC', 'RDMA_READ_RESPONSE_MIDDLE', 39), ('UC', 'SEND_MIDDLE', 8)]:
        code, pad = opcode(transport, op)[0], -size % 4
        bth = BTH(opcode=code, solicited=1, migreq=1, padcount=pad, pkey=0x8001, fecn=1, dqpn=0xabcdef, ackreq=1,
                  psn=0xfedcba)
        rows.append(build(bth / Raw(payload[:size] + bytes(pad)) if size else bth,
                          {'opcode': code, 'se': 1, 'm': 1, 'padcnt': pad, 'p_key': 0x8001, 'destqp': 0xabcdef, 'a': 1,
                           'psn': 0xfedcba}, {'id': 0x1234, 'flags': 'DF', 'ttl': 63, 'tos': 0x6a}))
    ack = opcode('RC', 'ACKNOWLEDGE')[0]
    packet, fields = build(BTH(opcode=ack, dqpn=17, psn=5) / AETH(syndrome=0x63, msn=0x123456),
                           {'opcode': ack, 'destqp': 17, 'psn': 5}, {'id': 0xffff, 'ttl': 1}, chksum=0)
    rows.append((packet, fields + ['infiniband.aeth.syndrome=0x63', 'infiniband.aeth.msn=0x123456']))
    rows.append(build(cnp(0xd2), {'opcode': 0x81, 'destqp': 0xd2}, {'id': 0x98c6, 'flags': 'DF', 'tos': 0x89}, chksum=0))
    header('golden_scapy', 'scapy.contrib.roce over IPv4', rows)


if __name__ == '__main__':
    if sys.argv[1:2] == ['rxe'] and len(sys.argv) == 3:
        rxe(sys.argv[2])
    elif sys.argv[1:] == ['scapy']:
        scapy()
    else:
        sys.exit(__doc__)
