/* Golden packets: scapy.contrib.roce over IPv4. Made by golden.py. */
static const struct golden golden_scapy[] = {
        {"456a0050123440003f113cbbc0000207c6336409c0a912b7003c67b700c0800180abcdef80fedcba0102"
         "030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232421c543e7",
         "infiniband.bth.opcode=0x0 infiniband.bth.se=0x1 infiniband.bth.m=0x1 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0xabcdef "
         "infiniband.bth.a=0x1 infiniband.bth.psn=0xfedcba "},
        {"456a002c123440003f113cdfc0000207c6336409c0a912b70018466304c0800180abcdef80fedcba0940"
         "bf5f",
         "infiniband.bth.opcode=0x4 infiniband.bth.se=0x1 infiniband.bth.m=0x1 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0xabcdef "
         "infiniband.bth.a=0x1 infiniband.bth.psn=0xfedcba "},
        {"456a0054123440003f113cb7c0000207c6336409c0a912b70040f06b24f0800180abcdef80fedcba0102"
         "030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425000000ccbbc703",
         "infiniband.bth.opcode=0x24 infiniband.bth.se=0x1 infiniband.bth.m=0x1 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0xabcdef "
         "infiniband.bth.a=0x1 infiniband.bth.psn=0xfedcba "},
        {"456a0054123440003f113cb7c0000207c6336409c0a912b70040530222e0800180abcdef80fedcba0102"
         "030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252600000a8e2885",
         "infiniband.bth.opcode=0x22 infiniband.bth.se=0x1 infiniband.bth.m=0x1 "
         "infiniband.bth.padcnt=0x2 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0xabcdef "
         "infiniband.bth.a=0x1 infiniband.bth.psn=0xfedcba "},
        {"456a0054123440003f113cb7c0000207c6336409c0a912b70040d7d70ed0800180abcdef80fedcba0102"
         "030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262700d79bc3b1",
         "infiniband.bth.opcode=0xe infiniband.bth.se=0x1 infiniband.bth.m=0x1 "
         "infiniband.bth.padcnt=0x1 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0xabcdef "
         "infiniband.bth.a=0x1 infiniband.bth.psn=0xfedcba "},
        {"456a0034123440003f113cd7c0000207c6336409c0a912b700209c1821c0800180abcdef80fedcba0102"
         "03040506070822a42322",
         "infiniband.bth.opcode=0x21 infiniband.bth.se=0x1 infiniband.bth.m=0x1 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0xabcdef "
         "infiniband.bth.a=0x1 infiniband.bth.psn=0xfedcba "},
        {"45000030ffff00000111cd79c0000207c6336409c0a912b7001c00001100ffff00000011000000056312"
         "34568f2b2587",
         "infiniband.bth.opcode=0x11 infiniband.bth.destqp=0x11 infiniband.bth.psn=0x5 "
         "infiniband.aeth.syndrome=0x63 infiniband.aeth.msn=0x123456 "},
        {"4589003c98c640004011b51dc0000207c6336409c0a912b7002800008100ffff400000d2000000000000"
         "00000000000000000000000000006bbdc22a",
         "infiniband.bth.opcode=0x81 infiniband.bth.destqp=0xd2 "},
};
