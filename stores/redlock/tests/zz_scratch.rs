mod common;
use std::time::*; use std::sync::*; use std::sync::atomic::*;
use common::*; use leasehold_testkit::servers::Independent;
#[tokio::test(flavor = "multi_thread")]
async fn perf() {
  for n in [3usize] {
    let servers = Independent::start(n);
    let url = fresh_url(&servers);
    let c = client(&url, LONG).await;
    let t=Instant::now(); let mut lat=vec![];
    for i in 0..2000 { let t=Instant::now(); let g=take(&c, &format!("k{}",i%10)).await; lat.push(t.elapsed()); g.release().await.unwrap(); }
    lat.sort(); println!("{n} nodes: lock+unlock {:?} each, lock p50 {:?} p99 {:?}", t.elapsed()/2000, lat[1000], lat[1980]);
    for k in [1usize,2,4,8] {
      let stop=Arc::new(AtomicBool::new(false)); let cnt=Arc::new(AtomicU64::new(0)); let mut js=vec![];
      for _ in 0..k { let c=client(&url, LONG).await; let (stop,cnt)=(stop.clone(),cnt.clone()); js.push(tokio::spawn(async move { let m=c.mutex("hot"); while !stop.load(Ordering::Relaxed){ let g=m.lock().await.unwrap(); cnt.fetch_add(1,Ordering::Relaxed); g.release().await.unwrap(); } })); }
      tokio::time::sleep(Duration::from_secs(3)).await; let n0=cnt.load(Ordering::Relaxed); stop.store(true,Ordering::Relaxed);
      println!("  {k} clients on one name: {}/s  attempts/held/split/taken/confirm/notes/acts/q {:?}", n0/3, leasehold_redlock::attempt::CNT.iter().map(|c| c.swap(0,Ordering::Relaxed)/3).collect::<Vec<_>>()); for j in js { let _=j.await; }
    }
    let stop=Arc::new(AtomicBool::new(false)); let cnt=Arc::new(AtomicU64::new(0)); let mut js=vec![];
    let c=client(&url, LONG).await; servers[0].cli(&["CONFIG","RESETSTAT"]);
    for w in 0..64 { let c=c.clone(); let (stop,cnt)=(stop.clone(),cnt.clone()); js.push(tokio::spawn(async move { let m=c.mutex(format!("n{w}")); while !stop.load(Ordering::Relaxed){ let g=m.lock().await.unwrap(); cnt.fetch_add(1,Ordering::Relaxed); g.release().await.unwrap(); } })); }
    tokio::time::sleep(Duration::from_secs(3)).await; let n0=cnt.load(Ordering::Relaxed); stop.store(true,Ordering::Relaxed);
    println!("{}", servers[0].cli(&["INFO","commandstats"]).lines().filter(|l| l.contains("evalsha")||l.contains("hset")||l.contains("info:")||l.contains("hmget")||l.contains("cmdstat_info")||l.contains("publish")||l.contains("hdel")||l.contains("pexpire")).collect::<Vec<_>>().join("\n"));
    println!("  64 tasks on 64 names: {}/s", n0/3); for j in js { let _=j.await; }
  }
}
