/* Golden packets: Linux rdma_rxe over IPv4 and IPv6, read by tshark. Made by golden.py. */
static const struct golden golden_rxe[] = {
        {"4500005436cc40004011ef2c0a4d00040a4d0003c12112b7004000000430ffff00000011800ec1d87b7b"
         "7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b000000eebc7b9a",
         "infiniband.bth.opcode=0x4 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x11 infiniband.bth.a=0x1 infiniband.bth.psn=0xec1d8 "},
        {"45000060d24a4000401153a20a4d00030a4d0004c21012b7004c00000a30ffff0000001880233e1e0000"
         "00552aae9000000009f90000002100000000000000000000000000000000000000000000000000000000"
         "0000000001000000bf4ce576",
         "infiniband.bth.opcode=0xa infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x18 infiniband.bth.a=0x1 infiniband.bth.psn=0x233e1e "
         "infiniband.reth.va=0x552aae9000 infiniband.reth.r_key=0x9f9 "
         "infiniband.reth.dmalen=0x21 "},
        {"4500003c377d40004011ee930a4d00040a4d0003c1e312b7002800000c00ffff00000015805d01330000"
         "00552aaea000000006da0000001797e7761a",
         "infiniband.bth.opcode=0xc infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x15 infiniband.bth.a=0x1 infiniband.bth.psn=0x5d0133 "
         "infiniband.reth.va=0x552aaea000 infiniband.reth.r_key=0x6da "
         "infiniband.reth.dmalen=0x17 "},
        {"45000048d22e4000401153d60a4d00030a4d0004c1e312b7003400001010ffff00000017005d01331f00"
         "00010f58be207063d4149246c0b4ded16fbffaceb21f343dbd00f269412e",
         "infiniband.bth.opcode=0x10 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x1 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x17 infiniband.bth.a=0x0 infiniband.bth.psn=0x5d0133 "
         "infiniband.aeth.syndrome=0x1f infiniband.aeth.msn=0x1 "},
        {"45000030d1c040004011545c0a4d00030a4d0004c12112b7001c00001100ffff00000011000ec1d81f00"
         "00011cbdbbe8",
         "infiniband.bth.opcode=0x11 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x11 infiniband.bth.a=0x0 infiniband.bth.psn=0xec1d8 "
         "infiniband.aeth.syndrome=0x1f infiniband.aeth.msn=0x1 "},
        {"45000038d2924000401153820a4d00030a4d0004c23f12b7002400001200ffff00000019000dfc311f00"
         "0001746e0d0c7bebb17183bea372",
         "infiniband.bth.opcode=0x12 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x19 infiniband.bth.a=0x0 infiniband.bth.psn=0xdfc31 "
         "infiniband.aeth.syndrome=0x1f infiniband.aeth.msn=0x1 "
         "infiniband.atomicacketh.origremdt=0x746e0d0c7bebb171 "},
        {"4500004837bb40004011ee490a4d00040a4d0003c23f12b7003400001300ffff00000017800dfc310000"
         "00552aaea0000000086d000000000000000000000000000000005ede2df4",
         "infiniband.bth.opcode=0x13 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x17 infiniband.bth.a=0x1 infiniband.bth.psn=0xdfc31 "
         "infiniband.reth.va=0x552aaea000 infiniband.reth.r_key=0x86d "
         "infiniband.atomiceth.swapdt=0x0 infiniband.atomiceth.cmpdt=0x0 "},
        {"4500004837d740004011ee2d0a4d00040a4d0003c27012b7003400001400ffff0000001880f191030000"
         "00552aaea0000000092500000000000000010000000000000000dc87d579",
         "infiniband.bth.opcode=0x14 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x18 infiniband.bth.a=0x1 infiniband.bth.psn=0xf19103 "
         "infiniband.reth.va=0x552aaea000 infiniband.reth.r_key=0x925 "
         "infiniband.atomiceth.swapdt=0x1 infiniband.atomiceth.cmpdt=0x0 "},
        {"45000054375f40004011ee990a4d00040a4d0003c18f12b7004000002420ffff0000001300e216997b7b"
         "7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b00003106a9c0",
         "infiniband.bth.opcode=0x24 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x2 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x13 infiniband.bth.a=0x0 infiniband.bth.psn=0xe21699 "},
        {"4500004c376b40004011ee950a4d00040a4d0003d9ce12b7003800006430ffff0000001400401fa91111"
         "1111000000167b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b00000003d3fec9",
         "infiniband.bth.opcode=0x64 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x14 infiniband.bth.a=0x0 infiniband.bth.psn=0x401fa9 "
         "infiniband.deth.q_key=0x11111111 infiniband.deth.srcqp=0x16 "},
        {"6000000000401140fd770000000000000000000000000004fd770000000000000000000000000003c2a3"
         "12b7004000000430ffff00000019804434097b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b"
         "7b7b7b7b7b7b7b7b7b7b7b7b7b000000847712bc",
         "infiniband.bth.opcode=0x4 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x19 infiniband.bth.a=0x1 infiniband.bth.psn=0x443409 "},
        {"60000000004c1140fd770000000000000000000000000003fd770000000000000000000000000004c3fc"
         "12b7004c00000a30ffff00000022808dfadd000000552aae900000001331000000210000000000000000"
         "00000000000000000000000000000000000000000000000001000000aa54ad73",
         "infiniband.bth.opcode=0xa infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x22 infiniband.bth.a=0x1 infiniband.bth.psn=0x8dfadd "
         "infiniband.reth.va=0x552aae9000 infiniband.reth.r_key=0x1331 "
         "infiniband.reth.dmalen=0x21 "},
        {"6000000000281140fd770000000000000000000000000004fd770000000000000000000000000003c3bd"
         "12b7002800000c00ffff0000001d808f5e52000000552aaea00000000e6100000017232a19b4",
         "infiniband.bth.opcode=0xc infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x1d infiniband.bth.a=0x1 infiniband.bth.psn=0x8f5e52 "
         "infiniband.reth.va=0x552aaea000 infiniband.reth.r_key=0xe61 "
         "infiniband.reth.dmalen=0x17 "},
        {"6000000000341140fd770000000000000000000000000003fd770000000000000000000000000004c3bd"
         "12b7003400001010ffff00000021008f5e521f0000018efa829df26461f5af7aa0f128ffa43dcfdef104"
         "dce07600d11ff1b4",
         "infiniband.bth.opcode=0x10 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x1 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x21 infiniband.bth.a=0x0 infiniband.bth.psn=0x8f5e52 "
         "infiniband.aeth.syndrome=0x1f infiniband.aeth.msn=0x1 "},
        {"60000000001c1140fd770000000000000000000000000003fd770000000000000000000000000004c2a3"
         "12b7001c00001100ffff0000001b004434091f000001f570629b",
         "infiniband.bth.opcode=0x11 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x1b infiniband.bth.a=0x0 infiniband.bth.psn=0x443409 "
         "infiniband.aeth.syndrome=0x1f infiniband.aeth.msn=0x1 "},
        {"6000000000241140fd770000000000000000000000000003fd770000000000000000000000000004c43d"
         "12b7002400001200ffff0000002300861f4c1f000001c1e13791074a5d3104074c65",
         "infiniband.bth.opcode=0x12 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x23 infiniband.bth.a=0x0 infiniband.bth.psn=0x861f4c "
         "infiniband.aeth.syndrome=0x1f infiniband.aeth.msn=0x1 "
         "infiniband.atomicacketh.origremdt=0xc1e13791074a5d31 "},
        {"6000000000341140fd770000000000000000000000000004fd770000000000000000000000000003c43d"
         "12b7003400001300ffff0000001f80861f4c000000552aaea00000001074000000000000000000000000"
         "0000000066a2a149",
         "infiniband.bth.opcode=0x13 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x1f infiniband.bth.a=0x1 infiniband.bth.psn=0x861f4c "
         "infiniband.reth.va=0x552aaea000 infiniband.reth.r_key=0x1074 "
         "infiniband.atomiceth.swapdt=0x0 infiniband.atomiceth.cmpdt=0x0 "},
        {"6000000000341140fd770000000000000000000000000004fd770000000000000000000000000003c480"
         "12b7003400001400ffff0000002080f4059a000000552aaea00000001138000000000000000100000000"
         "000000008acf0fc2",
         "infiniband.bth.opcode=0x14 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x0 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x20 infiniband.bth.a=0x1 infiniband.bth.psn=0xf4059a "
         "infiniband.reth.va=0x552aaea000 infiniband.reth.r_key=0x1138 "
         "infiniband.atomiceth.swapdt=0x1 infiniband.atomiceth.cmpdt=0x0 "},
        {"6000000000401140fd770000000000000000000000000004fd770000000000000000000000000003c32a"
         "12b7004000002420ffff0000001b009587e47b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b"
         "7b7b7b7b7b7b7b7b7b7b7b7b7b7b0000540531e0",
         "infiniband.bth.opcode=0x24 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x2 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x1b infiniband.bth.a=0x0 infiniband.bth.psn=0x9587e4 "},
        {"6000000000381140fd770000000000000000000000000004fd770000000000000000000000000003ce44"
         "12b7003800006430ffff0000001c00cd857311111111000000207b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b"
         "7b7b7b7b7b000000a4af1e3b",
         "infiniband.bth.opcode=0x64 infiniband.bth.se=0x0 infiniband.bth.m=0x0 "
         "infiniband.bth.padcnt=0x3 infiniband.bth.tver=0x0 infiniband.bth.p_key=0xffff "
         "infiniband.bth.destqp=0x1c infiniband.bth.a=0x0 infiniband.bth.psn=0xcd8573 "
         "infiniband.deth.q_key=0x11111111 infiniband.deth.srcqp=0x20 "},
};
