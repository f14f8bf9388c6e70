/* SPDX-License-Identifier: Apache-2.0
 * The switch of docs/design.md §6, corrected.  One job, two nodes (A,B), one coordinator, NM migrations one
 * after another.  Every line of `do` is one atomic step of one party, and depends only on what that party has
 * in its journal (durable) plus statements it received.  So a crash between any two steps is the interleaving
 * in which that party does nothing for a while; volatile state is dropped explicitly (T0/TP/TV -> TQ on
 * restart, paused-without-record -> resume).
 *
 * Messages.  Commands are "sent" bits that, once set, may be delivered at any later time, any number of
 * times, or never (loss, duplication, reordering, delay, partition).  Statements about a journal record that
 * is never revoked (GONE, RELEASED, RUNS(k), ABORTED, OWNER) are read off the record itself at any later time
 * or never: same thing, fewer bits.  A late lease is worth nothing, because its end is counted at the holder
 * from the moment it asked: so a lease is one global value that the holder may pick up while it lasts; it ends
 * at the holder no later than at the grantor, who acts on its end only afterwards.
 *
 * Liveness.  At one moment chosen by the checker the faults stop (stable=1): everything in flight is lost,
 * each link is for ever up or down, and each party works from its journal and resends.  After that no step
 * can repeat for ever, so "eventually" needs no fairness assumption.
 *
 * SN (docs/adr/0001): the source left before BARRIER and recorded that it never will write one. No final manifest can then
 * exist, so the target can never have verified, and the coordinator may close for the source without hearing the target.
 *
 * -DV_xxx: deliberately broken or literal-text variants, each must be caught.
 */
#ifndef NM
#define NM 1
#endif
#ifndef KPRE
#define KPRE 3            /* grants C->T, C->S, C->T ... before stability (incarnation steps) */
#endif
#define KLIM (KPRE+stable)
#ifndef MAXLOST
#define MAXLOST 1
#endif

/* coordinator */
#define C0 0  /* not begun */
#define CP 1  /* begun, nothing ever granted */
#define CG 2  /* granted incarnation ck: odd = target's, even = source's */
#define CA 3  /* closed: the source owns the job */
#define CF 4  /* closed: the target owns the job */
#define CU 5  /* the store was lost: what was begun, granted or closed is not known (FORGET only) */
/* source */
#define S0 0  /* no record */
#define SB 1  /* BARRIER record: may not run by itself any more */
#define SR 2  /* RESUMED(sk) */
#define SX 3  /* RELEASED */
#define SN 4  /* RESUMED(n), never a BARRIER */
/* target */
#define T0 0
#define TP 1  /* preparing, receiving (volatile) */
#define TV 2  /* VERIFIED (volatile) */
#define TC 3  /* COMMITTED(tk) */
#define TQ 4  /* GONE = relinquished, also as tombstone */

byte c[3], ck[3], s[3], sk[3], t[3], tk[3];
byte sr[3], tr[3];                 /* highest incarnation that ever ran there (RUNS reports) */
bit prepS[3], prepT[3], fin[3], uab[3], ssole[3], tsole[3], memS[3], memT[3];
byte promS[3], promT[3];           /* promise (lease) given by the source to the target, and back */
byte src[3];
byte gl;                           /* the coordinator's lease that still lasts: m*8+k, 0 none */
bit on[2], lost[2];
byte nlost, idead, jobdead;
bit stable, lC0, lC1, lAB;
bit upd[2];                        /* agent process down (matters only to V_FENCE_AGENT) */
bit forgot, chk;
bit fl[2], cV, onV;                /* VAULT only */
bit termOver;                      /* FORGET only: a full lease term has passed since the store was lost */
bit heardS, heardT;                /* FORGET only: a side has answered since, with these records */
byte ans_s, ans_sk, ans_t, ans_tk;

#if defined(LIVE) || defined(PROP_ONE) || defined(REACH)
#define AST(e) skip
#else
#define AST(e) assert(e)      /* giving up never stops a running instance */
#endif
#define X(m) src[m]
#define Y(m) (1-src[m])
#define LC(x) ((x==0 && lC0) || (x==1 && lC1))
#define alive(x) (!lost[x])
#define reachC(x) (!stable || (alive(x) && LC(x)))
#define reachST  (!stable || (!lost[0] && !lost[1] && (lAB || (lC0 && lC1))))
#define direct   (!stable || (!lost[0] && !lost[1] && lAB))
#define GL(m,k) (gl == (m)*8+(k))
#if NM>1
#define laterRec(m,x) (m==1 && c[2]!=C0 && ((src[2]==x && s[2]!=S0) || (src[2]!=x && t[2]!=T0)))
#define closedAt(m,x) (m==1 || (src[1]==x && (s[1]==SX || (s[1]==SR && ssole[1]) || s[1]==S0 || s[1]==SN)) || (src[1]!=x && (t[1]==TQ || (t[1]==TC && tsole[1]))))
#define ownsAt(m,x)   (m==1 || (src[1]==x && ((s[1]==SR && ssole[1]) || s[1]==S0 || s[1]==SN)) || (src[1]!=x && t[1]==TC && tsole[1]))
#ifdef V_NOCLOSE
#undef closedAt
#define closedAt(m,x) (1)
#undef ownsAt
#define ownsAt(m,x) (on[x])
#endif
#else
#define laterRec(m,x) 0
#define closedAt(m,x) 1
#define ownsAt(m,x) 1
#endif

#ifdef V_ALWAYS_LEASE          /* SW-8 without its owners: a side that runs needs the coordinator's lease */
#define SRIGHT(m) (GL(m,sk[m]) || (sk[m]==0 && reachC(X(m))))
#else
#define SRIGHT(m) (ssole[m] || GL(m,sk[m]) || (promT[m]==sk[m] && sk[m]))
#endif
#define TRIGHT(m) (tsole[m] || GL(m,tk[m]) || promS[m]==tk[m])
#ifdef V_COMMIT_RUNS           /* "COMMITTED" is taken as the right to run */
#undef TRIGHT
#define TRIGHT(m) 1
#endif

#define imgS(m) (alive(X(m)) && memS[m])
#define imgT(m) (alive(Y(m)) && memT[m])

#ifdef V_FENCE_AGENT
#define FOK(x) (!upd[x])
#else
#define FOK(x) 1
#endif

inline fence() {
  d_step {
  if :: on[Y(1)] && t[1]==TC && !TRIGHT(1) && !laterRec(1,Y(1)) && FOK(Y(1)) -> on[Y(1)]=0 :: else fi;
  if :: on[X(1)] && s[1]==SR && !SRIGHT(1) && !laterRec(1,X(1)) && FOK(X(1)) -> on[X(1)]=0 :: else fi;
#if NM>1
  if :: c[2]!=C0 && on[Y(2)] && t[2]==TC && !TRIGHT(2) && FOK(Y(2)) -> on[Y(2)]=0 :: else fi;
  if :: c[2]!=C0 && on[X(2)] && s[2]==SR && !SRIGHT(2) && FOK(X(2)) -> on[X(2)]=0 :: else fi;
#endif
  }
}

#ifdef V_RECLAIM_OWN           /* reclaim gives the source the job for good instead of a lease */
#define RECLAIM_SOLE 1
#else
#define RECLAIM_SOLE 0
#endif

#define COORD(m,prevclosed,newsrc) \
:: atomic { c[m]==C0 && prevclosed && !stable -> c[m]=CP; src[m]=newsrc; memS[m]=((m==1) -> 1 : ((c[1]==CA) -> memS[1] : memT[1])); } \
:: atomic { (c[m]==CP||c[m]==CG) && !prepS[m] && (!stable || (alive(X(m)) && LC(X(m)) && s[m]==S0 && !on[X(m)])) -> prepS[m]=1 } \
:: atomic { (c[m]==CP||c[m]==CG) && !prepT[m] && (!stable || (alive(Y(m)) && LC(Y(m)) && t[m]==T0)) -> prepT[m]=1 } \
:: atomic { (c[m]==CP||c[m]==CG) && !uab[m] && !stable -> uab[m]=1 }                                  /* user's abort */ \
:: atomic { c[m]==CP && !uab[m] && (!stable || (t[m]==TV && reachC(Y(m)))) -> c[m]=CG; ck[m]=1 }      /* journal, then COMMIT */ \
:: atomic { c[m]==CP && (!stable || uab[m] || !(t[m]==TV && reachC(Y(m)))) -> c[m]=CA }               /* abort: nothing was granted */ \
:: atomic { c[m]==CG && t[m]==TQ && reachC(Y(m)) -> c[m]=CA } \
:: atomic { c[m]==CG && s[m]==SX && reachC(X(m)) -> c[m]=CF } \
:: atomic { c[m]==CG && s[m]==SN && reachC(X(m)) -> c[m]=CA } \
:: atomic { c[m]==CG && gl==0 && (ck[m]%2==1) && (!stable || (reachC(Y(m)) && (t[m]==TV||t[m]==TC) && !tsole[m] && memT[m] && !uab0(m))) -> gl=(m)*8+ck[m] } \
:: atomic { c[m]==CG && gl==0 && (ck[m]%2==0) && (!stable || (reachC(X(m)) && (s[m]==SB||s[m]==SR) && !ssole[m])) -> gl=(m)*8+ck[m] } \
:: atomic { c[m]==CG && gl==0 && (ck[m]%2==1) && ck[m]<KLIM && (!stable || (!reachC(Y(m)) && reachC(X(m)) && (s[m]==SB||s[m]==SR) && !ssole[m])) -> c[m]=CG; ck[m]=ck[m]+1 } \
:: atomic { c[m]==CG && gl==0 && (ck[m]%2==0) && ck[m]<KLIM && (!stable || (!reachC(X(m)) && reachC(Y(m)) && (t[m]==TV||t[m]==TC) && !tsole[m] && memT[m])) -> c[m]=CG; ck[m]=ck[m]+1 }

#define uab0(m) (uab[m] && t[m]==TV)     /* a wanted abort is asked of the target before it is granted again */

#define SOURCE(m) \
:: atomic { !stable && alive(X(m)) && c[m]!=C0 && prepS[m] && s[m]==S0 && on[X(m)] && closedAt(m,X(m)) && ownsAt(m,X(m)) -> on[X(m)]=0 }           /* pause */ \
:: atomic { alive(X(m)) && c[m]!=C0 && m==1 && s[m]==S0 && !on[X(m)] NORECSTUCK && FL(X(m)) && !laterRec(m,X(m)) -> on[X(m)]=1 }                             /* no record: just go on */ \
:: atomic { alive(X(m)) && c[m]!=C0 && prepS[m] && s[m]==S0 && !on[X(m)] && closedAt(m,X(m)) && ownsAt2(m,X(m)) -> s[m]=SB }                                    /* journal BARRIER */ \
:: atomic { alive(X(m)) && c[m]!=C0 && s[m]==S0 NORECWAIT(m) && closedAt(m,X(m)) && ownsAt2(m,X(m)) -> s[m]=SN }                                                /* leaves before BARRIER, for good */ \
:: atomic { alive(X(m)) && s[m]==SN && !on[X(m)] && memS[m] && !laterRec(m,X(m)) && FL(X(m)) -> on[X(m)]=1 } \
:: atomic { alive(X(m)) && c[m]!=C0 && SENDFINAL(m) && !fin[m] && direct && (!stable || t[m]==TP) -> fin[m]=1 }                                     /* then the final manifest */ \
:: atomic { alive(X(m)) && s[m]==SB && t[m]==TQ && reachST -> s[m]=SR; sk[m]=0; ssole[m]=1; promS[m]=0 }                                          /* GONE from the target */ \
:: atomic { alive(X(m)) && s[m]==SB && c[m]==CA && reachC(X(m)) -> s[m]=SR; sk[m]=0; ssole[m]=1; promS[m]=0 }                                                   /* ABORTED from the coordinator */ \
:: atomic { alive(X(m)) && (s[m]==SB || (s[m]==SR && !ssole[m])) && ck[m]%2==0 && ck[m]>sk[m] && GL(m,ck[m]) && PROMOK(promS[m]) -> s[m]=SR; sk[m]=ck[m]; ssole[m]=RECLAIM_SOLE } \
:: atomic { alive(X(m)) && s[m]==SR && !on[X(m)] && memS[m] && !laterRec(m,X(m)) && PROMOK(promS[m]) && SRIGHT(m) && FL(X(m)) -> on[X(m)]=1; sr[m]=sk[m] } \
:: atomic { alive(X(m)) && (s[m]==SB || (s[m]==SR && RELGUARD(m))) && RELCOND(m) && reachST -> AST(!on[X(m)]); s[m]=SX; on[X(m)]=0 }                         /* RELEASED */ \
:: atomic { alive(X(m)) && s[m]==SX && memS[m] -> memS[m]=0 } \
:: atomic { NOPROM alive(X(m)) && (s[m]==SB || (s[m]==SR && !ssole[m])) && !on[X(m)] && t[m]==TC && tk[m]>sk[m] && promS[m]==0 && reachST && (!stable || (!on[Y(m)] && memT[m])) -> promS[m]=tk[m] } \
:: atomic { alive(X(m)) && s[m]==SR && !ssole[m] && ((t[m]==TQ && reachST) || (c[m]==CA && reachC(X(m)))) -> ssole[m]=1; promS[m]=0 }

#ifdef V_NOCLOSE
#define ownsAt2(m,x) 1
#else
#define ownsAt2(m,x) ownsAt(m,x)
#endif
#ifdef V_NORECORD_WAITS        /* restarted source agent finds a paused job and no record: waits to be told */
#define NORECSTUCK && !stable
#define NORECWAIT(m) && on[X(m)]
#else
#define NORECSTUCK
#define NORECWAIT(m)
#endif
#ifdef V_FINAL_FIRST           /* sends the final manifest before the BARRIER record is durable */
#define SENDFINAL(m) (s[m]==SB || (s[m]==S0 && !on[X(m)] && prepS[m]))
#else
#define SENDFINAL(m) (s[m]==SB)
#endif
#ifdef V_PROM_IGNORED
#define PROMOK(p) 1
#else
#define PROMOK(p) (p==0)
#endif
#ifdef V_LATE_RUNS             /* frees on any RUNS report of this migration, also an older incarnation's */
#define RELGUARD(m) 1
#define RELCOND(m) (tr[m]>0)
#else
#define RELGUARD(m) (!ssole[m])
#ifdef V_FREE_AT_COMMIT        /* frees when the target has committed, not when it runs */
#define RELCOND(m) (t[m]==TC && tk[m]>sk[m])
#else
#define RELCOND(m) (tr[m]>sk[m])
#endif
#endif
#ifdef V_NO_PROMISE            /* only the coordinator can extend the target's right */
#define NOPROM 0 &&
#else
#define NOPROM
#endif

#ifdef V_NO_TOMBSTONE          /* answers RELINQUISHED for a migration it has no record of, and keeps none */
#define TOMB(m) (t[m]==TP||t[m]==TV)
#define NOTOMB(m) :: atomic { alive(X(m)) && s[m]==SB && t[m]==T0 && reachST -> s[m]=SR; sk[m]=0; ssole[m]=1 }
#else
#define TOMB(m) (t[m]==T0||t[m]==TP||t[m]==TV)
#define NOTOMB(m)
#endif
#ifdef V_LATE_COMMIT           /* a COMMIT is obeyed however old it is */
#define COMMITOK(m) ((c[m]>=CG && ck[m]>=1 && t[m]==TV) || (ck[m]%2==1 && ck[m]>tk[m] && GL(m,ck[m])))
#define COMMITK(m) ((t[m]==TV) -> 1 : ck[m])
#else
#define COMMITOK(m) (ck[m]%2==1 && ck[m]>tk[m] && GL(m,ck[m]))
#define COMMITK(m) ck[m]
#endif

#define TARGET(m) \
NOTOMB(m) \
:: atomic { alive(Y(m)) && c[m]!=C0 && prepT[m] && t[m]==T0 && closedAt(m,Y(m)) -> t[m]=TP } \
:: atomic { alive(Y(m)) && t[m]==TP && fin[m] -> t[m]=TV; memT[m]=1 } \
:: atomic { alive(Y(m)) && (t[m]==TV || (t[m]==TC && !tsole[m])) && memT[m] && COMMITOK(m) && PROMOK(promT[m]) -> tk[m]=COMMITK(m); t[m]=TC }             /* the commit point */ \
:: atomic { alive(Y(m)) && c[m]!=C0 && TOMB(m) && closedAt(m,Y(m)) && (!stable || ((s[m]==SB||s[m]==SR||s[m]==SN) && reachST) || ((uab[m]||c[m]==CA||ASKS_BACK(m)||t[m]!=TV) && reachC(Y(m))) || (m==1 && c[2]!=C0)) -> t[m]=TQ } \
:: atomic { !stable && alive(Y(m)) && memT[m] && (t[m]==TP||t[m]==TV||t[m]==TQ) && !(t[m]==TV) -> memT[m]=0 }                                          /* restart may lose the image */ \
:: atomic { alive(Y(m)) && t[m]==TC && !tsole[m] && sr[m]>tk[m] && reachST -> AST(!on[Y(m)]); t[m]=TQ; on[Y(m)]=0 }                                           /* the other side runs a later incarnation */ \
:: atomic { alive(Y(m)) && t[m]==TQ && memT[m] && (s[m]==SR||s[m]==SN) && reachST -> memT[m]=0 } \
:: atomic { !stable && alive(Y(m)) && idead==0 && memT[m] && (t[m]==TV||(t[m]==TC && !tsole[m])) && !laterRec(m,Y(m)) -> idead=1; memT[m]=0; on[Y(m)]=0; if :: s[m]==SX -> jobdead=1 :: else fi } \
:: atomic { alive(Y(m)) && !memT[m] && (t[m]==TV||(t[m]==TC && !jobdead)) -> t[m]=TQ }                                                       /* instance found dead: GONE */ \
:: atomic { alive(Y(m)) && t[m]==TC && memT[m] && !on[Y(m)] && !laterRec(m,Y(m)) && PROMOK(promT[m]) && TRIGHT(m) && FL(Y(m)) -> on[Y(m)]=1; tr[m]=tk[m] } \
:: atomic { NOPROM alive(Y(m)) && t[m]==TC && !tsole[m] && !on[Y(m)] && s[m]==SR && sk[m]>tk[m] && promT[m]==0 && reachST && (!stable || !on[X(m)]) -> promT[m]=sk[m] } \
:: atomic { alive(Y(m)) && t[m]==TC && !tsole[m] && memT[m] && ((s[m]==SX && reachST) || (c[m]==CF && reachC(Y(m)))) -> tsole[m]=1; promT[m]=0 }

/* in the stable phase a lease that can be renewed is renewed */
#define RENEWC(m) (c[m]==CG && ((GL(m,ck[m]) && (ck[m]%2==1) && reachC(Y(m))) || (GL(m,ck[m]) && (ck[m]%2==0) && reachC(X(m)))))
#define RENEWPS(m) (reachST && t[m]==TC && promS[m]==tk[m])
#define RENEWPT(m) (reachST && s[m]==SR && promT[m]==sk[m])

#define BROKEN(m) \
BRK1(m) BRK2(m) BRK3(m) BRK4(m) BRK5(m) BRK6(m) BRK7(m) BRK8(m) BRK9(m) BRK10(m) EXT1(m) EXT2(m)
#ifdef V_LEASE_ENDED           /* "once the target's lease is known to have ended", nobody having promised not to grant it again */
#define BRK1(m) :: atomic { alive(X(m)) && s[m]==SB && gl==0 && c[m]==CG -> s[m]=SR; sk[m]=0; ssole[m]=1 }
#else
#define BRK1(m)
#endif
#ifdef V_C_ABORTS_ALONE        /* "ABORTED from any state before COMMITTED" as the coordinator sees it */
#define BRK2(m) :: atomic { c[m]==CG && uab[m] && !stable -> c[m]=CA }
#else
#define BRK2(m)
#endif
#ifdef V_C_FORGETS             /* COMMIT sent before it is journalled; crash */
#define BRK3(m) :: atomic { c[m]==CG && ck[m]==1 && !stable && !forgot -> c[m]=CP; forgot=1 }
#else
#define BRK3(m)
#endif
#ifdef V_FENCE_AGENT
#define BRK4(m) :: atomic { m==1 && !stable && !upd[Y(m)] -> upd[Y(m)]=1 }
#else
#define BRK4(m)
#endif

#ifdef V_C_NO_WAIT  /* restarted coordinator reclaims without waiting for the lease it had given */
#define BRK5(m) :: atomic { c[m]==CG && ck[m]==1 && gl -> ck[m]=2; gl=(m)*8+2 }
#else
#define BRK5(m)
#endif
#ifdef V_FREE_FIRST  /* source frees memory, then journals */
#define BRK6(m) :: atomic { alive(X(m)) && s[m]==SB && tr[m]>0 && memS[m] -> memS[m]=0 }
#else
#define BRK6(m)
#endif
#ifdef V_GONE_NOT_DURABLE  /* target answers RELINQUISHED before the record is durable */
#define BRK7(m) :: atomic { alive(X(m)) && s[m]==SB && t[m]==TV && reachST -> s[m]=SR; sk[m]=0; ssole[m]=1 }
#else
#define BRK7(m)
#endif
#ifdef V_T_RUNS_FIRST  /* target starts the job, then journals COMMITTED */
#define BRK8(m) :: atomic { alive(Y(m)) && t[m]==TV && GL(m,1) && ck[m]==1 && !on[Y(m)] && memT[m] -> on[Y(m)]=1 }
#else
#define BRK8(m)
#endif
#ifdef V_S_RUNS_FIRST  /* source resumes a granted incarnation, then journals it */
#define BRK9(m) :: atomic { alive(X(m)) && s[m]==SB && ck[m]==2 && GL(m,2) && promS[m]==0 && !on[X(m)] -> on[X(m)]=1; sr[m]=2 }
#else
#define BRK9(m)
#endif
#ifdef V_CHECK_THEN_START  /* agent checks the lease, is delayed, starts the job: the deadline does not bind the job itself */
#define BRK10(m) :: atomic { alive(Y(m)) && t[m]==TC && TRIGHT(m) && !chk -> chk=1 } :: atomic { m==1 && chk && alive(Y(m)) && t[m]==TC && !on[Y(m)] && memT[m] -> on[Y(m)]=1; chk=0 }
#else
#define BRK10(m)
#endif
#ifdef WRITEOFF  /* operator (or the next migration) gives the source's image up: the coordinator will never reclaim */
#define EXT1(m) :: atomic { c[m]==CG && t[m]==TC && tk[m]==ck[m] && !stable -> c[m]=CF }
#else
#define EXT1(m)
#endif
/* FORGET: the coordinator's store is lost at any moment, or an older copy of it comes back; once. What agents report of a migration
 * that the store does not know (or knows less of) is decided by nobody until a full lease term has passed, so that no lease that
 * was given lasts, and until both sides have answered after that. Then the records alone decide. A record that ends the migration
 * decides by itself. A source that has BARRIER beside a target without COMMITTED: the target is asked to give up, since ABORTED may have
 * been reported to a user. A target that has committed: the later incarnation is granted again. */
#ifdef FORGET
#define ASKS_BACK(m) (c[m]==CU && termOver)
#ifdef V_FORGET_NO_WAIT        /* decides at once: leases that it gave and forgot may last */
#define TERM_PASSED 1
#define LEND_ANEW(m) :: atomic { c[m]==CG && forgot && gl && gl!=(m)*8+ck[m] -> gl=(m)*8+ck[m] }
#else
#define TERM_PASSED (gl==0)
#define LEND_ANEW(m)
#endif
#ifdef V_FORGET_EARLY_ANSWER   /* what was reported before the term was over counts */
#define MAYHEAR 1
#else
#define MAYHEAR termOver
#endif
#ifdef V_FORGET_ONE_SIDE       /* a target that reports VERIFIED or COMMITTED is granted without its source's answer */
#define ONE_SIDE(m) :: atomic { c[m]==CU && termOver && heardT && (ans_t==TV || ans_t==TC) -> c[m]=CG; ck[m]=((ans_tk>0) -> ans_tk : 1) }
#else
#define ONE_SIDE(m)
#endif
#define BOTH_ANSWERED (termOver && heardS && heardT)
#define LATER_OF (((ans_sk > ans_tk) -> ans_sk : ans_tk))
#define FORGETTING(m) \
:: atomic { !stable && !forgot && c[m]!=C0 -> c[m]=CU; forgot=1 } \
:: atomic { c[m]==CU && !termOver && TERM_PASSED -> termOver=1 } \
:: atomic { c[m]==CU && MAYHEAR && !heardS && reachC(X(m)) && s[m]!=S0 -> heardS=1; ans_s=s[m]; ans_sk=sk[m] } \
:: atomic { c[m]==CU && MAYHEAR && !heardT && reachC(Y(m)) && t[m]!=T0 && t[m]!=TP -> heardT=1; ans_t=t[m]; ans_tk=tk[m] } \
:: atomic { c[m]==CU && termOver && reachC(X(m)) && s[m]==SX -> c[m]=CF } \
:: atomic { c[m]==CU && termOver && reachC(X(m)) && (s[m]==SN || (s[m]==SR && ssole[m])) -> c[m]=CA } \
:: atomic { c[m]==CU && termOver && reachC(Y(m)) && t[m]==TQ -> c[m]=CA } \
:: atomic { c[m]==CU && termOver && reachC(Y(m)) && t[m]==TC && tsole[m] -> c[m]=CF } \
:: atomic { c[m]==CU && BOTH_ANSWERED && ans_t==TC && (ans_s==SB || ans_s==SR) -> c[m]=CG; ck[m]=LATER_OF } \
LEND_ANEW(m) ONE_SIDE(m)
#else
#define FORGETTING(m)
#define ASKS_BACK(m) 0
#endif

#ifdef VAULT     /* a job with automatic fail-over: nobody runs without the coordinator's node lease; restore elsewhere when both are over */
#define EXT2(m) :: atomic { m==1 && !cV && c[1]!=C0 && !fl[0] -> fl[0]=1 } \
:: atomic { m==1 && !cV && c[1]!=C0 && !fl[1] -> fl[1]=1 } \
:: atomic { m==1 && fl[0] -> fl[0]=0; on[0]=0 } \
:: atomic { m==1 && fl[1] -> fl[1]=0; on[1]=0 } \
:: atomic { m==1 && c[1]!=C0 && !cV && VWAIT -> cV=1 } \
:: atomic { m==1 && cV && !onV -> onV=1 }
#ifdef V_VAULT_NO_WAIT
#define VWAIT 1
#else
#define VWAIT (!fl[0] && !fl[1])
#endif
#define FL(x) fl[x]
#else
#define EXT2(m)
#define FL(x) 1
#endif

#define CLOSED(m) (c[m]==CA || c[m]==CF)
#if NM>1
#ifdef V_NOCLOSE
#define PREV2 (c[1]>=CG)
#define NEW2  (on[1])
#else
#define PREV2 CLOSED(1)
#define NEW2 ((c[1]==CA) -> src[1] : 1-src[1])
#endif
#endif

/* (a) */
#define one (on[0]+on[1]+onV <= 1)
/* (b) an image always exists, unless it went with the node that last ran the job (or the job itself died after the hand-over) */
#if NM>1
#define L (c[2]!=C0 -> 2 : 1)
#else
#define L 1
#endif
#define someimg(m) (imgS(m) || imgT(m))
#define diedthere(m) (idead && tr[m]>0 && s[m]==SX)   /* it ran at the target, died there, and the RUNS report came late */
#define lostOK(m) (jobdead || diedthere(m) || (lost[X(m)] && !(s[m]==SX) && !memT[m]) || (lost[Y(m)] && s[m]==SX && tr[m]>0) || (lost[X(m)] && (t[m]==TQ || (t[m]==TC && !memT[m]))))
#define bothgone(m) (s[m]==SX && t[m]==TQ && !jobdead && !diedthere(m))
#if NM>1
#define safe (one && (c[1]==C0 || someimg(1) || lostOK(1) || c[2]!=C0) && (c[2]==C0 || someimg(2) || lostOK(2) || diedthere(1)) && !bothgone(1) && !bothgone(2) && dsafe(1) && dsafe(2))
#else
#define safe (one && (c[1]==C0 || someimg(1) || lostOK(1)) && !bothgone(1) && dsafe(1))
#endif
/* (d) once the coordinator has said ABORTED, the target never runs in this migration */
#define dsafe(m) (!(c[m]==CA && t[m]==TC))

/* (c) liveness: in the end one instance runs, unless every usable image is cut off from both others */
#define conn(x) (alive(x) && (LC(x) || (lAB && !lost[0] && !lost[1])))
#define usable(m) ((conn(X(m)) && s[m]!=SX) || (conn(Y(m)) && (t[m]==TV||t[m]==TC) && memT[m]))
#ifdef NO_STALE
#define stale(m) 0
#else
#define stale(m) (c[m]==CA && !conn(X(m)))   /* aborted, and the source does not know it or is lost: see report */
#endif
/* after the store was lost an open switch waits for both sides, or for the operator's word */
#define undecided(m) (c[m]==CU && !(conn(X(m)) && LC(X(m)) && conn(Y(m)) && LC(Y(m))))
#define goal(m) (on[0]+on[1]==1 || !usable(m) || stale(m) || undecided(m) || jobdead || diedthere(m))
#if NM>1
#define okgoal ((c[2]==C0 && goal(1)) || (c[2]!=C0 && (goal(2) || diedthere(1))))
#else
#define okgoal (goal(1))
#endif


#ifndef REACHED
#define REACHED
#endif

active proctype P() {
  atomic { on[0]=1; fl[0]=1 }
  do
  COORD(1,1,0)
  SOURCE(1)
  TARGET(1)
  BROKEN(1)
  FORGETTING(1)
#if NM>1
  COORD(2,PREV2,NEW2)
  SOURCE(2)
  TARGET(2)
  BROKEN(2)
  :: atomic { promS[2] && (!stable || !RENEWPS(2)) -> promS[2]=0; fence() }
  :: atomic { promT[2] && (!stable || !RENEWPT(2)) -> promT[2]=0; fence() }
#endif
  REACHED
#ifndef LIVE
#ifdef PROP_ONE
  :: atomic { !(one) -> assert(false) }
#else
  :: atomic { !(safe) -> assert(false) }
#endif
#endif
  /* clocks */
  :: atomic { gl && (!stable || !(RENEWC(1)
#if NM>1
     || RENEWC(2)
#endif
     )) -> gl=0; fence() }
  :: atomic { promS[1] && (!stable || !RENEWPS(1)) -> promS[1]=0; fence() }
  :: atomic { promT[1] && (!stable || !RENEWPT(1)) -> promT[1]=0; fence() }
  /* a node is lost for good */
  :: atomic { !stable && nlost<MAXLOST && c[1]!=C0 -> nlost++; lost[0]=1; on[0]=0; fl[0]=0 }
  :: atomic { !stable && nlost<MAXLOST && c[1]!=C0 -> nlost++; lost[1]=1; on[1]=0; fl[1]=0 }
  /* the faults end: all in flight is lost, links are as they are from now on */
#ifdef LIVE
  :: atomic { !stable && c[1]!=C0 -> stable=1;
       prepS[1]=0; prepT[1]=0; fin[1]=0; prepS[2]=0; prepT[2]=0; fin[2]=0;
       if :: lC0=1 :: lC0=0 fi; if :: lC1=1 :: lC1=0 fi; if :: lAB=1 :: lAB=0 fi; }
#endif
  od
}

#ifdef PROP_D
/* (d) a user's abort that was accepted (ABORTED journalled) ends with the source running, if it knows of it */
ltl d { ((<> stable) && (<> (c[1]==CA && conn(X(1)) && stable))) -> (<> [] (on[X(1)] || diedthere(1) || jobdead)) }
#endif
#if defined(LIVE) && !defined(PROP_D)
ltl live { (<> stable) -> (<> [] okgoal) }
#endif
