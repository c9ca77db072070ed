/* Where the bits of a group's values are, for each width: value j of a group of width b starts at
 * bit j*b. Unsigned tables that shuffles and shifts take as they are. */

#define BIT(width, j) ((width) * (j))
#define LOW(width, j) (BIT(width, j) & 7)

/* ROWS_k(f): f(0), f(1), ... f(k), for tables indexed by width. */
#define ROWS_8(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8)
#define ROWS_16(f) ROWS_8(f), f(9), f(10), f(11), f(12), f(13), f(14), f(15), f(16)
#define ROWS_32(f)                                                                                 \
  ROWS_16(f), f(17), f(18), f(19), f(20), f(21), f(22), f(23), f(24), f(25), f(26), f(27), f(28),  \
      f(29), f(30), f(31), f(32)
#define ROWS_64(f)                                                                                 \
  ROWS_32(f), f(33), f(34), f(35), f(36), f(37), f(38), f(39), f(40), f(41), f(42), f(43), f(44),  \
      f(45), f(46), f(47), f(48), f(49), f(50), f(51), f(52), f(53), f(54), f(55), f(56), f(57),   \
      f(58), f(59), f(60), f(61), f(62), f(63), f(64)

/* EACH_8(f, w): f(w, 0), ... f(w, 7). */
#define EACH_8(f, w) f(w, 0), f(w, 1), f(w, 2), f(w, 3), f(w, 4), f(w, 5), f(w, 6), f(w, 7)
